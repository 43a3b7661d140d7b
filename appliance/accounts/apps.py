"""The room's name for Django, and the administration with its own site: only what is registered by hand is in it."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class AccountsConfig(AppConfig):
    name = "appliance.accounts"
    default = True  # of the two in this file

    def ready(self) -> None:
        import_module("appliance.accounts.signing_in")  # its receivers
        import_module("appliance.accounts.sessions")


class PortalAdminConfig(SimpleAdminConfig):
    """Without autodiscovery: libraries would register what nobody should edit."""

    default_site = "appliance.accounts.site.PortalAdmin"

    def ready(self) -> None:
        super().ready()
        for room in ("accounts", "audit", "reports"):
            import_module(f"appliance.{room}.admin")
