"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class LogConfig(AppConfig):
    """Configures the application for Django."""

    name = "appliance.log"
    label = "maillog"
    verbose_name = "Mail log"
