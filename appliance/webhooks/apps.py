"""The room's name for Django."""

from __future__ import annotations

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """Names the app to Django."""

    name = "appliance.webhooks"
