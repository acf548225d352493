"""Addresses of the shop: the admin, and Lowkiq's view behind its login."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("lowkiq/", include("lowkiq.django.urls"))]
