"""The fixed cast of the tests of the portal: a user of each role, and somebody who has none."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

__all__ = ["PASSWORD", "client_of", "sign_in", "user"]

PASSWORD = "a long enough password"


def user(role: str = "", name: str = "") -> User:
    """Of ``role`` ("" has none), made when it is not there."""
    made, new = User.objects.get_or_create(username=name or role or "stranger")
    if new:
        made.set_password(PASSWORD)
        made.save()
        if role:
            made.groups.add(Group.objects.get(name=role))
    return made


def client_of(role: str = "", name: str = "", enforce_csrf_checks: bool = False) -> Client:
    """A client in which a user of ``role`` is signed in."""
    client = Client(enforce_csrf_checks=enforce_csrf_checks)
    client.force_login(user(role, name), backend="django.contrib.auth.backends.ModelBackend")
    return client


def sign_in(client: Client, name: str, password: str = PASSWORD, **named: str) -> int:
    """By the form, as a browser does; the status of the answer."""
    return client.post("/accounts/login/", {"login": name, "password": password, **named}).status_code
