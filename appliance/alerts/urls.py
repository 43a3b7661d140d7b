"""Where the pages of this room are."""

from __future__ import annotations

from django.urls import path

from appliance.alerts import views

app_name = "alerts"
urlpatterns = [
    path("", views.alerts, name="alerts"),
    path("test/", views.test, name="test"),
    path("rules/<slug:rule>/", views.rule, name="rule"),
    path("rules/<slug:rule>/silence/", views.silence_rule, name="silence_rule"),
    path("silences/<int:pk>/end/", views.end_silence, name="end_silence"),
    path("<int:pk>/", views.alert, name="alert"),
    path("<int:pk>/acknowledge/", views.acknowledge, name="acknowledge"),
    path("<int:pk>/silence/", views.silence_alert, name="silence_alert"),
]
