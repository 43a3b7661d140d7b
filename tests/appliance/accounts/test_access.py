"""Role × URL × method: every page of the site, out of Django's own resolver, against the table of access.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.appliance.accounts.access import TABLE, Least
from tests.appliance.accounts.sample_users import client_of, user

pytestmark = pytest.mark.django_db

ROLES = ("", "viewer", "operator", "administrator")  # by what they may, as in Least
SIGN_IN = ("/accounts/login/", "/admin/login/")
ARGUMENTS = {"queue_id": "0123456789ABCDEF", "uuid": "6f2c1f5e-0f6e-4a51-9d5d-0d1f4a2d7c11", "slug": "abc"}


@cache
def pages() -> dict[str, str]:
    """Name of the page (its route when it has none) → route, of all there are."""
    return dict(_walk(get_resolver().url_patterns, "", ""))


def _walk(patterns: list[URLPattern | URLResolver], route: str, space: str) -> Iterator[tuple[str, str]]:
    for each in patterns:
        here = route + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, here, f"{each.namespace}:" if each.namespace else space)
        else:
            yield (f"{space}{each.name}" if each.name else here), here


def path_of(route: str, number: int) -> str:
    """The route with something in its places: a user that is there, for what is a number."""

    def filled(found: re.Match[str]) -> str:
        return ARGUMENTS.get(found.group(1), str(number))

    return "/" + re.sub(r"<(?:(\w+):)?\w+>", filled, route)


def bystander() -> int:
    return user("viewer", "bystander").pk


def ask(client: Client, method: str, path: str) -> tuple[int, bool]:
    """The status, and whether one is sent to sign in."""
    response: HttpResponseBase = getattr(client, method.lower())(path)
    response.close()
    return response.status_code, response.status_code == 302 and response.headers["Location"].startswith(SIGN_IN)


def test_every_page_of_the_site_is_in_the_table() -> None:
    assert sorted(set(pages()) - set(TABLE)) == [], (
        "a new page: say in tests/appliance/accounts/access.py who may do what"
    )
    assert sorted(set(TABLE) - set(pages())) == [], "these are no longer there"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("role", [None, *ROLES])
def test_each_role_may_what_the_table_says_and_nothing_else(role: str | None, method: str) -> None:
    number = bystander()
    client = Client() if role is None else client_of(role)
    wrong = []
    for name, route in sorted(pages().items(), key=lambda item: item[0] == "account_logout"):  # signing out comes last
        if name not in TABLE:
            continue
        least = TABLE[name][method == "POST"]
        status, sent_away = ask(client, method, path_of(route, number))
        if name == "api:nothing":
            right = status == 404
        elif least is Least.TOKEN or (name == "api:openapi" and role in (None, "") and least is not Least.NEVER):
            right = status == 401
        elif role is None:
            right = (least is Least.OPEN and status < 400) or sent_away or (status == 405 and least is Least.NEVER)
        elif least is Least.NEVER:
            right = status == 405 or (status == 403 and (role != "administrator" or name.startswith("admin:")))
        elif ROLES.index(role) >= least:
            right = status not in (401, 403, 405, 500) and not (sent_away and least is not Least.OPEN)
        else:
            right = status == 403
        if not right:
            wrong.append(
                f"{method} {name}: {status}{' to sign in' if sent_away else ''}, but the least is {least.name}"
            )
    assert not wrong, "\n".join(wrong)


def test_no_page_that_takes_a_post_takes_it_from_another_site() -> None:
    number = bystander()
    client = client_of("administrator", enforce_csrf_checks=True)
    for name, route in pages().items():
        if name in TABLE and TABLE[name][1] not in (Least.NEVER, Least.TOKEN) and name != "api:nothing":
            assert ask(client, "POST", path_of(route, number))[0] == 403, name
    client.get("/accounts/password/")
    text = client.post("/accounts/password/", {}).content.decode()
    assert "This form has expired" in text
    assert "appliance/waypost.css" in text


def test_what_changes_something_is_a_post_of_an_operator_or_an_administrator() -> None:
    """The table itself: nobody below an operator posts anything but what is about signing in."""
    own = {name for name in TABLE if name.startswith(("account_", "mfa_"))} | {"admin:login", "api:nothing"}
    assert {name for name, (_, post) in TABLE.items() if post < Least.OPERATOR} <= own
