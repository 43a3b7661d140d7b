"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Names the app to Django."""

    name = "appliance.alerts"
