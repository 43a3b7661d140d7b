"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.destinations import views

app_name = "destinations"
urlpatterns = [
    path("", views.page, name="list"),
]
