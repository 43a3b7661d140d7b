"""Passkeys without a browser: who must make one, which stays, and the host they are for."""

from __future__ import annotations

import dataclasses
import json

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client, RequestFactory, override_settings

from appliance.accounts.first_steps import FirstStep, first_step_of
from appliance.accounts.models import Identity
from appliance.accounts.passkeys import passkeys_work, relying_party
from tests.appliance.accounts.sample_users import client_of, user
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

SIGN_IN = "/accounts/passkeys/sign-in/"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def without_password(name: str = "operator") -> User:
    it = user(name)
    it.set_unusable_password()
    it.save()
    return it


def passkey(it: User) -> Authenticator:
    made: Authenticator = Authenticator.objects.create(
        user=it, type=Authenticator.Type.WEBAUTHN, data={"name": "telephone", "credential": {}}
    )
    return made


def test_a_user_without_any_way_in_makes_a_passkey_first() -> None:
    it = without_password()
    client = client_of("operator")
    assert client.get("/audit/")["Location"] == "/accounts/passkeys/add/"
    text = markup_of(client.get("/accounts/passkeys/add/", headers={"host": "localhost"}))
    assert "without one you cannot sign in again" in text
    passkey(it)
    assert client.get("/audit/").status_code == 200


@pytest.mark.parametrize("way", ["password", "single sign-on", "another passkey", "none"])
def test_the_only_way_in_is_not_removed(way: str) -> None:
    it = user("operator") if way == "password" else without_password()
    one = passkey(it)
    if way == "single sign-on":
        Identity.objects.create(user=it, issuer="https://login.example.org", subject="7")
    if way == "another passkey":
        passkey(it)
    client = client_of("operator")
    session = client.session
    session["account_authentication_methods"] = [{"method": "mfa", "at": 4e9, "reauthenticated": True}]
    session["account_authentication_methods_user"] = str(it.pk)
    session.save()
    assert client.post(f"/accounts/passkeys/{one.pk}/remove/").status_code == 302
    assert Authenticator.objects.filter(pk=one.pk).exists() is (way == "none")


def test_nobody_removes_the_passkey_of_another() -> None:
    one = passkey(user("administrator"))
    client = client_of("operator")
    client.post("/accounts/reauthenticate/", {"password": "a long enough password"})
    assert client.post(f"/accounts/passkeys/{one.pk}/remove/").status_code == 404
    assert Authenticator.objects.filter(pk=one.pk).exists()


def test_a_passkey_is_a_second_factor() -> None:
    it = user("operator")
    with override_settings(PORTAL=dataclasses.replace(settings.PORTAL, second_factor_for=("operator",))):
        assert first_step_of(it) is FirstStep.SECOND_FACTOR
        passkey(it)
        assert first_step_of(it) is None


@pytest.mark.parametrize(
    ("url", "host", "party", "is_secure", "works"),
    [
        ("", "127.0.0.1:8025", "127.0.0.1", False, False),
        ("", "localhost:8025", "localhost", False, True),
        ("", "[::1]:8025", "[::1]", False, False),
        ("https://mail.example.org", "mail.example.org", "mail.example.org", True, True),
        ("https://mail.example.org:8443/", "mail.example.org:8443", "mail.example.org", True, True),
        ("http://mail.example.org", "mail.example.org", "mail.example.org", False, False),
        ("https://192.0.2.1", "192.0.2.1", "192.0.2.1", True, False),
        ("https://mail.example.org", "192.0.2.1", "mail.example.org", True, False),
        ("https://mail.example.org", "other.example", "mail.example.org", True, False),
        ("https://mail.example.org", "a.mail.example.org", "mail.example.org", True, True),
    ],
)
def test_passkeys_are_for_the_portals_own_name(url: str, host: str, party: str, is_secure: bool, works: bool) -> None:
    hosts = [*settings.ALLOWED_HOSTS, "mail.example.org", "a.mail.example.org", "other.example", "192.0.2.1"]
    with override_settings(PORTAL=dataclasses.replace(settings.PORTAL, public_url=url), ALLOWED_HOSTS=hosts):
        request = RequestFactory().get("/", secure=is_secure, headers={"host": host})
        assert relying_party(request) == party
        assert passkeys_work(request) is works


@pytest.mark.parametrize(
    "credential",
    ["", "[]", "1", '"x"', "{}", '{"response": 1}', '{"response": {"userHandle": 5}}', '{"response": {"userHandle": "!!"}}',
     json.dumps({"id": "x", "rawId": "x", "type": "public-key", "response": {"userHandle": "ODg4ODg4ODg4ODg4ODg4ODg4ODg4"}})],
)  # fmt: skip
def test_what_is_no_credential_signs_nobody_in(credential: str) -> None:
    client = Client()
    client.get(SIGN_IN, headers={"Accept": "application/json"})
    assert client.post(SIGN_IN, {"credential": credential})["Location"] == "/accounts/login/"
    assert client.get("/audit/").status_code == 302
    own = client_of("operator")
    assert own.post("/accounts/passkeys/reauthenticate/", {"credential": credential}).status_code in (302, 403)


def test_asking_for_a_challenge_many_times_is_slowed_down() -> None:
    client = Client()
    statuses = {client.get(SIGN_IN, headers={"Accept": "application/json"}).status_code for _ in range(62)}
    assert statuses == {200, 429}
