"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class PositionsConfig(AppConfig):
    name = "appliance.status"
