"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.status import positions_views as views

app_name = "positions"
urlpatterns = [
    path("", views.positions, name="positions"),
]
