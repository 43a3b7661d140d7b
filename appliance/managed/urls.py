"""URLs of the settings pages."""

from __future__ import annotations

from django.urls import path

from appliance.managed import effects_views, views

app_name = "managed"
urlpatterns = [
    path("", views.known, name="settings"),
    path("check/", views.check, name="check"),
    path("effects/", effects_views.effects, name="effects"),
    path("apply/", views.apply, name="apply"),
    path("history/", views.history, name="history"),
    path("export/", views.export, name="export"),
]
