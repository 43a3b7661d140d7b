"""Scopes: what a token may be used for. A scope never grants what the role of the token's user does not.

Keeps law: token-below-its-user (docs/laws.md).
"""

from __future__ import annotations

import enum

from appliance.accounts.roles import Role

__all__ = ["LEAST_ROLE", "SCOPE_CHOICES", "Scope"]


class Scope(enum.StrEnum):
    """Names a part of the API. A token has one or more; none includes another."""

    READ = "read"
    QUEUE = "queue"
    TUNE = "tune"
    SEND = "send"
    REPORT = "report"
    BODY = "body"
    ALERTS = "alerts"
    SETTINGS = "settings"
    USERS = "users"
    WEBHOOKS = "webhooks"


# scope -> the lowest role whose users can use it for anything
LEAST_ROLE = {
    Scope.READ: Role.VIEWER,
    Scope.QUEUE: Role.OPERATOR,
    Scope.TUNE: Role.OPERATOR,
    Scope.SEND: Role.OPERATOR,
    Scope.REPORT: Role.OPERATOR,
    Scope.BODY: Role.VIEWER,  # with the right to read bodies, which is apart from the roles
    Scope.ALERTS: Role.OPERATOR,
    Scope.SETTINGS: Role.ADMINISTRATOR,
    Scope.USERS: Role.ADMINISTRATOR,
    Scope.WEBHOOKS: Role.OPERATOR,
}

SCOPE_CHOICES = (
    (Scope.READ.value, "read: every page as data, without message bodies; the audit log for operators"),
    (Scope.QUEUE.value, "queue: change messages: delete, hold, release, retry, reroute, bounce"),
    (Scope.TUNE.value, "tune: suspend and resume destinations, set parameters"),
    (Scope.SEND.value, "send: hand in messages"),
    (Scope.REPORT.value, "report: start and stop reports"),
    (Scope.BODY.value, "body: read whole messages, if you may read bodies; each is recorded in the audit log"),
    (Scope.ALERTS.value, "alerts: acknowledge and silence alerts, send a test"),
    (
        Scope.SETTINGS.value,
        "settings: change the configuration, certificates, keys, maps, preferences and schedules of reports",
    ),
    (Scope.USERS.value, "users: manage users of the portal and of mail, their roles and passwords, tokens and locks"),
    (Scope.WEBHOOKS.value, "webhooks: pause, move and test webhooks; administrators also make, change and delete them"),
)
