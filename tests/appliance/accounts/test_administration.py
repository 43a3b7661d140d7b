"""The administration: users and roles with a reason, in the audit; what nobody may do; sessions that end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from axes.models import AccessAttempt
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client

from appliance.accounts.permissions import is_last_administrator, read_bodies
from appliance.accounts.roles import Role, may_read_bodies, role_of
from appliance.accounts.sessions import end_sessions
from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import PASSWORD, client_of, sign_in, user
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

INSIDE = "/audit/"
NEW = {"username": "ina", "password1": "a quite long password", "password2": "a quite long password", "role": "viewer",
       "why": "starts today"}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def entry_of(action: str) -> tuple[Entry, dict[str, Any], dict[str, Any]]:
    """The one, and what it says was before and after."""
    entry = Entry.objects.get(action=action)
    return entry, entry.before or {}, entry.after or {}


def fresh(name: str) -> User:
    return User.objects.get(username=name)


def change(client: Client, name: str, **changed: str) -> int:
    """The form of a user with what it holds, and what is ``changed`` ("" leaves a box unticked)."""
    it = fresh(name)
    fields = {"username": name, "first_name": it.first_name, "last_name": it.last_name, "is_active": "on",
              "role": (role_of(it) or Role.VIEWER).name.lower(), "why": "a test", **changed}  # fmt: skip
    return client.post(
        f"/admin/auth/user/{it.pk}/change/", {key: value for key, value in fields.items() if value}
    ).status_code


def test_only_administrators_enter() -> None:
    assert Client().get("/admin/").status_code == 302
    for role, status in (("", 403), ("viewer", 403), ("operator", 403), ("administrator", 200)):
        assert client_of(role).get("/admin/").status_code == status, role
    staff = User.objects.create_user("staff", password=PASSWORD, is_staff=True)
    client = Client()
    client.force_login(staff, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/admin/").status_code == 403, "Django's own flag says nothing here"


def test_the_administration_is_in_our_looks_and_holds_no_queue() -> None:
    text = markup_of(client_of("administrator").get("/admin/"))
    assert "appliance/waypost.css" in text
    assert "admin/css" not in text
    assert re.findall(r"<h2>([^<]+)</h2><p", text) == ["Users", "Roles", "Locks", "Audit", "Schedules"]


def test_a_new_user_is_made_with_a_reason_and_stands_in_the_audit() -> None:
    client = client_of("administrator")
    without = {name: value for name, value in NEW.items() if name != "why"}
    assert client.post("/admin/auth/user/add/", without).status_code == 200
    assert not User.objects.filter(username="ina").exists()
    assert client.post("/admin/auth/user/add/", NEW).status_code == 302
    assert "The user “ina” was added successfully" in markup_of(client.get("/admin/"))
    assert role_of(fresh("ina")) is Role.VIEWER
    entry, _, after = entry_of("user.add")
    assert (entry.who, entry.subject, entry.why) == ("administrator", "ina", "starts today")
    assert entry.before is None
    assert after["role"] == "viewer"
    assert "password" not in str(entry.after)
    assert sign_in(Client(), "ina", NEW["password1"]) == 302
    assert not LogEntry.objects.exists()


def test_a_change_is_in_the_audit_with_before_and_after() -> None:
    user("viewer")
    client = client_of("administrator")
    assert client.get(f"/admin/auth/user/{fresh('viewer').pk}/change/").status_code == 200
    assert change(client, "viewer", role="operator", bodies="on", why="stands in for Ina") == 302
    assert role_of(fresh("viewer")) is Role.OPERATOR
    assert may_read_bodies(fresh("viewer"))
    entry, before, after = entry_of("user.change")
    assert (before["role"], after["role"]) == ("viewer", "operator")
    assert (before["reads bodies"], after["reads bodies"]) == (False, True)
    assert entry.why == "stands in for Ina"
    assert change(client, "viewer", role="administrator", why="") == 200, "a reason is needed"
    assert role_of(fresh("viewer")) is Role.OPERATOR


def test_nobody_changes_what_he_himself_may_do() -> None:
    user("administrator", "second")
    client = client_of("administrator")
    assert change(client, "administrator", role="viewer") == 200
    assert change(client, "administrator", is_active="") == 200
    assert change(client, "administrator", bodies="on") == 200
    own = fresh("administrator")
    assert (role_of(own), own.is_active) == (Role.ADMINISTRATOR, True)
    assert change(client, "administrator", first_name="Ina") == 302, "but the name"
    client.post(f"/admin/auth/user/{own.pk}/delete/", {"post": "yes", "why": "by mistake"})
    assert fresh("administrator")
    assert client.get(f"/admin/auth/user/{own.pk}/password/").status_code == 403
    assert client.get(f"/admin/auth/user/{own.pk}/two-factor/").status_code == 403


def test_the_last_administrator_stays() -> None:
    one, two = user("administrator"), user("administrator", "second")
    assert not is_last_administrator(one)
    two.is_active = False
    two.save()
    assert is_last_administrator(one)
    assert not is_last_administrator(two)
    boss = User.objects.create_superuser("boss")
    assert not is_last_administrator(one)
    assert not is_last_administrator(boss)


def test_a_first_administrator_can_be_made_less_by_another() -> None:
    User.objects.create_superuser("boss", password=PASSWORD)
    assert change(client_of("administrator"), "boss", role="operator") == 302
    assert role_of(fresh("boss")) is Role.OPERATOR


def test_a_user_is_deleted_with_a_reason_and_the_audit_keeps_the_name() -> None:
    client_of("operator").post("/accounts/logout/")
    gone = user("operator")
    client = client_of("administrator")
    url = f"/admin/auth/user/{gone.pk}/delete/"
    assert client.get(url).status_code == 200
    client.post(url, {"post": "yes"})
    assert User.objects.filter(pk=gone.pk).exists(), "a reason is needed"
    assert client.post(url, {"post": "yes", "why": "has left"}).status_code == 302
    assert not User.objects.filter(pk=gone.pk).exists()
    assert entry_of("user.delete")[1]["role"] == "operator"
    assert Entry.objects.get(action="sign_out").who == "operator"


def test_a_forgotten_password_is_set_anew_and_sessions_end() -> None:
    theirs = Client()
    it = user("operator")
    sign_in(theirs, "operator")
    client = client_of("administrator")
    new = "entirely another one"
    url = f"/admin/auth/user/{it.pk}/password/"
    assert client.get(url).status_code == 200
    assert client.post(url, {"new_password1": new, "new_password2": new}).status_code == 422
    assert client.post(url, {"new_password1": "short", "new_password2": "short", "why": "forgot"}).status_code == 422
    assert client.post(url, {"new_password1": new, "new_password2": new, "why": "forgot it"}).status_code == 302
    assert theirs.get(INSIDE).status_code == 302
    assert sign_in(Client(), "operator", new) == 302
    assert Entry.objects.get(action="user.password").why == "forgot it"


def test_a_lost_telephone_is_forgotten_with_a_reason() -> None:
    it = user("operator")
    Authenticator.objects.create(user=it, type="totp", data={"secret": "x"})
    theirs = client_of("operator")
    url = f"/admin/auth/user/{it.pk}/two-factor/"
    client = client_of("administrator")
    assert client.get(url).status_code == 200
    assert client.post(url, {"why": ""}).status_code == 422
    assert client.post(url, {"why": "telephone stolen, asked in person"}).status_code == 302
    assert not Authenticator.objects.exists()
    assert theirs.get(INSIDE).status_code == 302
    assert entry_of("user.totp")[1]["TOTP"] is True


def test_sessions_end_with_what_they_rested_on() -> None:
    it = user("operator")
    group = Group.objects.get(name="viewer")

    def become(**fields: bool) -> None:
        for name, value in fields.items():
            setattr(it, name, value)
        it.save()

    changes: list[Callable[[], object]] = [
        lambda: it.groups.add(group), lambda: it.groups.remove(group), lambda: group.user_set.add(it),
        lambda: it.user_permissions.add(read_bodies()), it.user_permissions.clear,
        lambda: become(is_superuser=True), lambda: become(is_superuser=False), lambda: become(is_active=False),
    ]  # fmt: skip
    bystander = client_of("viewer")
    for each in changes:
        client = client_of("operator")
        assert client.get(INSIDE).status_code == 200
        each()
        assert client.get(INSIDE).status_code == 302
    become(is_active=True)
    assert client.get(INSIDE).status_code == 302, "it does not come back"
    assert bystander.get("/reports/").status_code == 200
    assert end_sessions(set()) == 0


def test_a_role_may_be_given_bodies() -> None:
    client = client_of("administrator")
    group = Group.objects.get(name="operator")
    url = f"/admin/auth/group/{group.pk}/change/"
    assert client.get(url).status_code == 200
    assert client.post(url, {"bodies": "on", "why": "the night shift needs it"}).status_code == 302
    assert may_read_bodies(user("operator"))
    assert not may_read_bodies(user("viewer"))
    assert Entry.objects.get(action="role.change").after == {"role": "operator", "reads bodies": True}
    assert client.get("/admin/auth/group/add/").status_code == 404
    assert client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes", "why": "trying"}).status_code == 404


def test_who_is_locked_is_unlocked_by_an_administrator() -> None:
    user("operator")
    for browser in ("one", "two"):
        for _ in range(4):
            sign_in(Client(HTTP_USER_AGENT=browser), "operator", "wrong")
    assert sign_in(Client(), "operator") == 429
    client = client_of("administrator")
    text = markup_of(client.get("/admin/axes/accessattempt/"))
    assert "Unlock" in text
    assert "not locked" not in text
    attempt = AccessAttempt.objects.first()
    assert attempt is not None
    assert "wrong" not in attempt.post_data
    url = f"/admin/axes/accessattempt/{attempt.pk}/delete/"
    assert client.get(url).status_code == 200
    assert client.post(url, {"post": "yes", "why": "was on holiday"}).status_code == 302
    assert sign_in(Client(), "operator") == 302
    assert Entry.objects.get(action="sign_in.lock.delete").why == "was on holiday"
