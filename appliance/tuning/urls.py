"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.tuning import views

app_name = "tuning"
urlpatterns = [
    path("", views.parameters, name="parameters"),
]
