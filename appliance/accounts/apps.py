"""The room's name for Django, and the administration with its own site: only what is registered by hand is in it."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class AccountsConfig(AppConfig):
    """Names the app to Django."""

    name = "appliance.accounts"
    default = True  # of the two in this file

    def ready(self) -> None:
        """Connects the signal handlers of sessions and sign-ins."""
        from appliance.accounts import sessions, signing_in  # noqa: F401  # connects their signal receivers


class PortalAdminConfig(SimpleAdminConfig):
    """Registers administration pages without autodiscovery, because libraries would register pages that must not be edited."""

    default_site = "appliance.accounts.site.PortalAdmin"

    def ready(self) -> None:
        """Registers the administration pages of all apps."""
        super().ready()
        from appliance.accounts import admin as _accounts  # noqa: F401  # registers its models
        from appliance.audit import admin as _audit  # noqa: F401
        from appliance.reports import admin as _reports  # noqa: F401
