"""URLs of the mail log."""

from __future__ import annotations

from django.urls import path

from appliance.log import views

app_name = "maillog"
urlpatterns = [
    path("", views.lines, name="lines"),
    path("newer/", views.newer, name="newer"),
]
