"""URLs of the audit pages."""

from __future__ import annotations

from django.urls import path

from appliance.audit import views

app_name = "audit"
urlpatterns = [
    path("", views.entries, name="entries"),
    path("csv/", views.csv, name="csv"),
    path("<int:pk>/", views.entry, name="entry"),
]
