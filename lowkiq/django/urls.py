"""Addresses of the web view: `path("lowkiq/", include("lowkiq.django.urls"))`."""

from __future__ import annotations

from django.urls import path

from lowkiq.django.view import view

app_name = "lowkiq"
urlpatterns = [path("", view, name="view"), path("<path:path>", view)]
