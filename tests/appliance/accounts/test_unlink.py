"""A user is unlinked from single sign-on: by the user or an administrator, recorded, and never from the only way in."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.test import Client

from appliance.accounts.models import Identity
from appliance.accounts.sessions import sessions_of
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.config.oidc import Oidc
from tests.appliance.accounts.sample_users import client_of, user
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

ISSUER = "https://login.example.org"
OWN = "/accounts/identity/unlink/"


@pytest.fixture(autouse=True)
def provider(settings: Any) -> Any:
    settings.OIDC = Oidc(issuer=ISSUER, client_id="waypost", name="Example Login")
    return settings


def linked(password: bool = True, issuer: str = ISSUER) -> User:
    it = user("operator")
    if not password:
        it.set_unusable_password()
        it.save()
    Identity.objects.create(user=it, issuer=issuer, subject="7")
    return it


def passkey(it: User, alone: bool) -> None:
    credential = {"clientExtensionResults": {"credProps": {"rk": alone}}}
    data = {"name": "telephone", "credential": credential}
    Authenticator.objects.create(user=it, type=Authenticator.Type.WEBAUTHN, data=data)


def confirmed(it: User) -> Client:
    """A client that has just confirmed who it is."""
    client = client_of("operator")
    session = client.session
    session["account_authentication_methods"] = [{"method": "mfa", "at": 4e9, "reauthenticated": True}]
    session["account_authentication_methods_user"] = str(it.pk)
    session.save()
    return client


@pytest.mark.parametrize(
    ("way", "stays"),
    [
        ("password", False),
        ("password that is turned off", True),
        ("passkey that signs in alone", False),
        ("passkey after the password", True),
        ("none", True),
        ("of another provider", False),
    ],
)
def test_the_only_way_in_stays(provider: Any, way: str, stays: bool) -> None:
    it = linked(way.startswith("password"), "https://old.example.org" if way == "of another provider" else ISSUER)
    if way == "password that is turned off":
        provider.OIDC = dataclasses.replace(provider.OIDC, passwords=False)
    if way.startswith("passkey"):
        passkey(it, way == "passkey that signs in alone")
    by_api = client_with({Scope.USERS}, "administrator")
    page = client_of("administrator").post(f"/admin/auth/user/{it.pk}/identity/", {"why": "left the company"})
    assert page.status_code == (422 if stays else 302)
    if stays:
        assert "the only way in of operator" in markup_of(page)
        assert code_of(by_api.post(f"/users/{it.pk}/unlink", {"why": "left the company"}))[:2] == (409, "conflict")
    assert Identity.objects.exists() is stays
    assert Entry.objects.filter(action="user.unlink").exists() is not stays


def test_a_user_unlinks_the_own_account_and_the_other_sessions_end() -> None:
    it = linked()
    other, client = client_of("operator"), confirmed(it)
    page = markup_of(client.get("/accounts/sessions/"))
    assert "Example Login" in page
    assert "links it again" in page
    assert client.post(OWN).status_code == 302
    assert not Identity.objects.exists()
    assert len(sessions_of(it)) == 1
    assert other.get("/accounts/sessions/").status_code == 302
    entry = Entry.objects.get(action="user.unlink")
    assert (entry.who, entry.before) == ("operator", {"identities": [f"7 at {ISSUER}"]})
    assert "Single sign-on" not in markup_of(client.get("/accounts/sessions/"))


def test_without_another_way_in_the_user_is_told_what_to_do_first() -> None:
    it = linked(password=False)
    client = confirmed(it)
    assert "First make a passkey that signs in alone" in markup_of(client.post(OWN, follow=True))
    assert Identity.objects.exists()


def test_an_open_page_of_another_person_is_not_enough() -> None:
    linked()
    client = client_of("operator")
    session = client.session
    session["account_authentication_methods"] = []
    session.save()
    assert "/reauthenticate/" in client.post(OWN)["Location"]
    assert Identity.objects.exists()


def test_the_api_unlinks_and_knows_a_passkey_as_a_second_factor() -> None:
    it = linked()
    client = client_with({Scope.USERS, Scope.READ}, "administrator")
    shown = client.get(f"/users/{it.pk}").json()
    assert (shown["linked"], shown["has_second_factor"], shown["has_totp"]) == (True, False, False)
    passkey(it, alone=False)
    assert client.post(f"/users/{it.pk}/unlink", {"why": "asked for"}).json() == {"done": True}
    assert client.post(f"/users/{it.pk}/unlink", {"why": "once more"}).json() == {"done": False}
    shown = client.get(f"/users/{it.pk}").json()
    assert (shown["linked"], shown["has_second_factor"], shown["has_totp"]) == (False, True, False)
    assert client.post("/users/99999/unlink", {"why": "nobody"}).status_code == 404
