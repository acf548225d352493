"""
The application as a node imports it: `lowkiq-supervisor -r lowkiq.django.site`, with DJANGO_SETTINGS_MODULE set. Sets
Django up first.
"""

from __future__ import annotations

import django
from django.db import connections

from lowkiq.django.application import get_app

django.setup()
#: The application, with the workers of all apps.
app = get_app()
# What an app's ready() has asked the database: after a fork its connections would be shared with the children.
connections.close_all()
