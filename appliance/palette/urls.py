"""The URL of the command palette."""

from __future__ import annotations

from django.urls import path

from appliance.palette import views

app_name = "palette"
urlpatterns = [path("", views.found, name="found")]
