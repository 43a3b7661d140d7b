"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """Configures the application for Django."""

    name = "appliance.api"
