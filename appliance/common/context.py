"""The context of the frame of every page: the reader, the reader's role, and the sections."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from appliance.accounts.first_steps import first_step
from appliance.accounts.passkeys import passkeys_work
from appliance.accounts.roles import Role, role_of
from appliance.alerts.open_alerts import open_alerts

__all__ = ["portal", "sections_of"]

NODES = "nodes:nodes"
# (name of the page's URL, label in the navigation, the lowest role)
SECTIONS = (
    ("status:overview", "Overview", Role.VIEWER),
    ("queue:list", "Queue", Role.VIEWER),
    ("queue:ages", "Ages", Role.VIEWER),
    ("maillog:lines", "Log", Role.VIEWER),
    ("destinations:list", "Destinations", Role.VIEWER),
    ("tuning:parameters", "Tuning", Role.VIEWER),
    ("managed:settings", "Settings", Role.VIEWER),
    ("positions:positions", "Restart positions", Role.VIEWER),
    ("routes:routes", "Routes", Role.VIEWER),
    (NODES, "Nodes", Role.VIEWER),
    ("alerts:alerts", "Alerts", Role.VIEWER),
    ("webhooks:webhooks", "Webhooks", Role.VIEWER),
    ("reports:reports", "Reports", Role.VIEWER),
    ("reports:schedules", "Schedules", Role.VIEWER),
    ("audit:entries", "Audit", Role.OPERATOR),
    ("admin:index", "Administration", Role.ADMINISTRATOR),
)


def sections_of(role: Role) -> list[tuple[str, str]]:
    """Returns the sections that a role has here: the name of the page's URL, and its label."""
    here = settings.WAYPOST.nodes.is_on
    return [(url, words) for url, words, least in SECTIONS if role >= least and (here or url != NODES)]


def portal(request: HttpRequest) -> dict[str, Any]:
    """Returns what the frame of every page shows: the role, its sections, the current one, and the open alerts.

    While a user must do something first, the frame shows nothing that needs a role.
    """
    user = getattr(request, "user", None)  # missing on an error page that comes before the sign-in is checked
    step = first_step(request) if user is not None and user.is_authenticated else None
    role = role_of(user) if user is not None and user.is_authenticated and step is None else None
    match = getattr(request, "resolver_match", None)
    here = match.view_name if match is not None else ""
    return {
        "section": next((words for url, words, _ in SECTIONS if url == here), ""),
        "role": role,
        "oidc": settings.OIDC,
        "passkeys_work": passkeys_work(request),
        "first_step": step.name.lower() if step is not None else "",
        "may_change": role is not None and role >= Role.OPERATOR,
        "may_administer": role is not None and role >= Role.ADMINISTRATOR,
        "alerts": open_alerts() if role is not None else None,
        "sections": [(url, words, url == here) for url, words in sections_of(role)] if role is not None else [],
    }
