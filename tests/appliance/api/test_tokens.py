"""The pages of tokens: making, listing, revoking; what is stored, shown and audited."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.core import serializers
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from appliance.api.models import ApiToken
from appliance.api.tokens import digest_of
from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import PASSWORD, client_of, user
from tests.appliance.api.asking import ApiClient, token_for

pytestmark = pytest.mark.django_db

PAGE, NEW = "/accounts/tokens/", "/accounts/tokens/new/"
FORM = {"name": "nightly script", "scopes": ["read", "queue"], "days": "30"}


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def asked_again(role: str, name: str = "") -> Client:
    """A client whose user has just entered the password."""
    client = client_of(role, name)
    page = client.get(NEW)
    assert page.status_code == 302
    assert "reauthenticate" in page["Location"]
    assert client.post(page["Location"], {"password": PASSWORD}).status_code == 302
    return client


def made(client: Client, **form: object) -> str:
    text = client.post(NEW, {**FORM, **form}).content.decode()
    found = re.search(r'<code id="token">(wpt_[\w-]{43})</code>', text)
    assert found is not None, text
    return found[1]


def test_a_token_is_shown_once_and_works() -> None:
    client = asked_again("operator")
    text = made(client)
    told = ApiClient(text).get("/token").json()
    assert (told["name"], told["user"], told["scopes"]) == ("nightly script", "operator", ["read", "queue"])
    page = client.get(PAGE).content.decode()
    assert "nightly script" in page
    assert text not in page
    assert text[:8] in page


def test_the_database_and_the_audit_have_no_token() -> None:
    text = made(asked_again("operator"))
    stored = serializers.serialize("json", [*ApiToken.objects.all(), *Entry.objects.all()])
    assert text not in stored
    assert text[9:] not in stored
    assert digest_of(text) in stored
    entry = Entry.objects.get(action="token.make")
    assert (entry.who, entry.subject, entry.outcome) == ("operator", "nightly script", "done")
    assert entry.after is not None
    assert entry.after["scopes"] == ["read", "queue"]


def test_making_a_token_asks_for_the_password_again() -> None:
    client = client_of("operator")
    answer = client.post(NEW, FORM)
    assert answer.status_code == 302
    assert "reauthenticate" in answer["Location"]
    assert not ApiToken.objects.exists()


def test_a_viewer_is_not_offered_what_a_viewer_may_not_do() -> None:
    client = asked_again("viewer")
    answer = client.post(NEW, FORM)
    assert answer.status_code == 422
    assert not ApiToken.objects.exists()
    assert 'value="queue"' not in answer.content.decode()
    assert ApiClient(made(client, scopes=["read"])).get("/token").status_code == 200


@pytest.mark.parametrize(
    "wrong", [{"days": "0"}, {"days": "366"}, {"days": "9" * 30}, {"scopes": []}, {"scopes": ["root"]}, {"name": " "}]
)
def test_what_is_wrong_makes_no_token(wrong: dict[str, object]) -> None:
    client = asked_again("operator")
    assert client.post(NEW, {**FORM, **wrong}).status_code == 422
    assert not ApiToken.objects.exists()


def test_a_token_always_ends() -> None:
    made(asked_again("operator"), days="365")
    assert ApiToken.objects.get().expires_at <= timezone.now() + timedelta(days=settings.PORTAL.api_token_days_max)


def test_a_user_has_a_bounded_number_of_tokens_in_use() -> None:
    client = asked_again("operator")
    for _ in range(settings.PORTAL.api_tokens_max):
        token, _ = token_for(user("operator"))
    assert client.post(NEW, FORM).status_code == 422
    client.post(f"{PAGE}{token.pk}/revoke/")
    made(client)


def test_two_tokens_in_use_have_two_names_because_the_audit_names_them() -> None:
    client = asked_again("operator")
    token_for(user("viewer"), name=str(FORM["name"]))  # another user's
    made(client)
    assert client.post(NEW, FORM).status_code == 422
    mine = ApiToken.objects.get(user=user("operator"))
    client.post(f"{PAGE}{mine.pk}/revoke/")
    made(client)


def test_a_revoked_token_stops_at_once_and_stays_in_the_list() -> None:
    token, text = token_for(user("operator"), name="leaked")
    api = ApiClient(text)
    assert api.get("/token").status_code == 200
    client = client_of("operator")
    assert client.post(f"{PAGE}{token.pk}/revoke/").status_code == 302
    assert api.get("/token").status_code == 401
    assert "revoked" in client.get(PAGE).content.decode()
    entry = Entry.objects.get(action="token.revoke")
    assert entry.before is not None
    assert (entry.who, entry.subject, entry.before["user"]) == ("operator", "leaked", "operator")


def test_tokens_that_ended_long_ago_are_deleted_and_later_ones_stay() -> None:
    it = user("operator")
    long_ago, lately = timezone.now() - timedelta(days=366), timezone.now() - timedelta(days=364)
    for name, ended in (("old expired", {"expires_at": long_ago}), ("old revoked", {"revoked_at": long_ago}),
                        ("expired", {"expires_at": lately}), ("revoked", {"revoked_at": lately})):  # fmt: skip
        ApiToken.objects.filter(pk=token_for(it, name=name)[0].pk).update(**ended)
    other, _ = token_for(user("viewer"), name="of another user")
    ApiToken.objects.filter(pk=other.pk).update(revoked_at=long_ago)
    token_for(it, name="new")
    left = set(ApiToken.objects.values_list("name", flat=True))
    assert left == {"expired", "revoked", "new", "of another user"}


def test_only_its_user_and_an_administrator_revoke_a_token() -> None:
    token, text = token_for(user("operator", "owner"), name="of the owner")
    other = client_of("operator", "other")
    assert other.post(f"{PAGE}{token.pk}/revoke/").status_code == 403
    assert "of the owner" not in other.get(PAGE).content.decode()
    assert ApiClient(text).get("/token").status_code == 200
    boss = client_of("administrator")
    assert "of the owner" in boss.get(PAGE).content.decode()
    boss.post(f"{PAGE}{token.pk}/revoke/")
    assert ApiClient(text).get("/token").status_code == 401
    assert Entry.objects.get(action="token.revoke").who == "administrator"


def test_a_name_is_harmless_on_the_page() -> None:
    token_for(user("operator"), name="<b>\u202e")
    page = client_of("operator").get(PAGE).content.decode()
    assert "<b>" not in page.partition("<main")[2].partition("Revoke")[0].replace("<bdi>", "")
    assert "\\u202e" in page


def test_the_list_of_operations_is_a_page_of_its_own() -> None:
    page = client_of("viewer").get("/api/v1/").content.decode()
    assert "/api/v1/queue/messages/{queue_id}" in page
    described = client_of("viewer").get("/api/v1/openapi.json")
    assert json.loads(described.content)["openapi"] == "3.1.0"
