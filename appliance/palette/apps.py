"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class PaletteConfig(AppConfig):
    """Configures the application for Django."""

    name = "appliance.palette"
    label = "palette"
