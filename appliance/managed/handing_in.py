"""Hands kept files and users of SMTP to the core: what the pages and the HTTP API do alike.

Law: a private key and a password go to the core and nowhere else. The audit log says that there was one.

Keeps law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

import secrets
from typing import Any

from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from appliance.audit.record import audited
from appliance.common.door import door
from mailcore.control.protocol.kept import KeptMade
from mailcore.control.protocol.settings import KeyFault
from mailcore.control.protocol.users import UserChanged

__all__ = ["WrongFields", "kept", "kept_removed", "made_password", "user_put", "user_removed"]

PASSWORD_BYTES = 15  # 120 bits, as 20 characters
SECRETS = frozenset(("password", "verifier"))


class WrongFields(ValueError):
    """Raised when the core names faults of what it was given; nothing was changed."""

    def __init__(self, faults: list[KeyFault]) -> None:
        super().__init__("; ".join(f"{each.key} {each.reason}" for each in faults[:5]))
        self.faults = faults


@sensitive_variables("given")
def kept(
    request: HttpRequest, action: str, subject: str, operation: str, given: dict[str, Any], why: str = ""
) -> KeptMade:
    """Asks the core to keep or make a file. The audit log has its name and what it is, never its content.

    Raises WrongFields, ControlError.
    """
    with audited(request, action, subject[:200], why=why) as entry:
        made = door(request).ask_change(operation, KeptMade, given, why=why)
        if made.faults:
            raise WrongFields(made.faults)
        entry.words = made.file
    return made


def kept_removed(request: HttpRequest, file: str, why: str = "") -> str:
    """Removes a file that no setting uses; returns where else it may be, "" if nowhere. Raises ControlError."""
    with audited(request, "kept.remove", file, why=why):
        return door(request).ask_change("kept_remove", KeptMade, {"file": file}, why=why).elsewhere


def made_password() -> str:
    """Returns a random password."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


@sensitive_variables("given")
def user_put(request: HttpRequest, given: dict[str, Any], why: str) -> UserChanged:
    """Adds or changes a user. Raises WrongFields, ControlError."""
    name, is_new = str(given["name"]), bool(given.get("new"))
    after = {key: value for key, value in given.items() if key not in SECRETS and key != "name"}
    after |= dict.fromkeys(SECRETS & given.keys(), "another")
    with audited(request, "user.add" if is_new else "user.change", name[:200], after=after, why=why) as entry:
        answer = door(request).ask_change("user_put", UserChanged, given, why=why)
        if answer.faults:
            raise WrongFields(answer.faults)
        entry.words = "added" if is_new else "changed"
    return answer


def user_removed(request: HttpRequest, name: str, revision: str, why: str = "") -> None:
    """Removes a user. Raises WrongFields, ControlError."""
    with audited(request, "user.remove", name, why=why):
        answer = door(request).ask_change("user_remove", UserChanged, {"name": name, "revision": revision}, why=why)
        if answer.faults:
            raise WrongFields(answer.faults)
