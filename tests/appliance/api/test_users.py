"""Users by the API: what the administration refuses is refused here, and each change is in the audit log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User

from appliance.accounts.permissions import role_name
from appliance.api.models import ApiToken
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import user
from tests.appliance.api.asking import ApiClient, client_with, code_of, token_for

pytestmark = pytest.mark.django_db
WHY = {"why": "a new colleague"}
PASSWORD = "correct horse battery staple"


@pytest.fixture
def client() -> ApiClient:
    return client_with({Scope.USERS}, "administrator")


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def test_a_user_is_made_changed_disabled_and_deleted(client: ApiClient) -> None:
    made = told(client.post("/users", {"username": "anna", "password": PASSWORD, "role": "operator", **WHY}), 201)
    assert (made["role"], made["active"], made["reads_bodies"]) == ("operator", True, False)
    it = User.objects.get(username="anna")
    assert it.check_password(PASSWORD)
    changed = told(client.post(f"/users/{it.pk}", {"role": "viewer", "reads_bodies": True, "last_name": "Berg", **WHY}))
    assert (changed["role"], changed["reads_bodies"], changed["last_name"]) == ("viewer", True, "Berg")
    assert told(client.post(f"/users/{it.pk}", {"active": False, **WHY}))["role"] == "viewer", "what is left out stays"
    told(client.post(f"/users/{it.pk}/password", {"password": PASSWORD + "!", **WHY}))
    assert User.objects.get(pk=it.pk).check_password(PASSWORD + "!")
    told(client.post(f"/users/{it.pk}/delete", WHY))
    assert not User.objects.filter(pk=it.pk).exists()
    entries = list(Entry.objects.order_by("pk").values_list("action", "who", "token", "subject"))
    assert [each[0] for each in entries] == ["user.add", "user.change", "user.change", "user.password", "user.delete"]
    assert {each[1:] for each in entries} == {("administrator", "a program", "anna")}
    assert PASSWORD not in str(list(Entry.objects.values())), "a password is nowhere in the audit log"


def test_users_are_listed_by_cursor_without_their_passwords(client: ApiClient) -> None:
    for number in range(5):
        user("viewer", f"user{number}")
    names, cursor = [], None
    while True:
        page = told(client.get("/users", {"limit": 2} | ({"cursor": cursor} if cursor else {})))
        names += [each["username"] for each in page["users"]]
        if (cursor := page["cursor"]) is None:
            break
    assert names == ["administrator", *(f"user{number}" for number in range(5))]
    assert "password" not in page["users"][0]


def test_nobody_changes_the_own_rights_and_there_is_always_an_administrator(client: ApiClient) -> None:
    me = User.objects.get(username="administrator")
    assert code_of(client.post(f"/users/{me.pk}", {"role": "viewer", **WHY}))[:2] == (409, "conflict")
    assert code_of(client.post(f"/users/{me.pk}", {"active": False, **WHY}))[:2] == (409, "conflict")
    assert code_of(client.post(f"/users/{me.pk}/delete", WHY))[:2] == (403, "forbidden")
    assert code_of(client.post(f"/users/{me.pk}/password", {"password": PASSWORD, **WHY}))[:2] == (403, "forbidden")
    assert code_of(client.post(f"/users/{me.pk}/remove-second-factor", WHY))[:2] == (403, "forbidden")
    assert role_name(User.objects.get(pk=me.pk)) == "administrator"
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"password": "short"}, "password"), ({"username": "administrator"}, "username"), ({"username": "a b"}, "username"),
        ({"role": "king"}, "role"), ({"why": ""}, "why"), ({"is_superuser": True}, "is_superuser"),
        ({"reads_bodies": "yes"}, "reads_bodies"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_new_user_is_named(client: ApiClient, wrong: dict[str, Any], argument: str) -> None:
    response = client.post("/users", {"username": "anna", "password": PASSWORD, **WHY} | wrong)
    assert code_of(response) == (422, "invalid", argument)
    assert User.objects.count() == 1


def test_a_role_lets_its_users_read_bodies(client: ApiClient) -> None:
    assert told(client.post("/roles/operator", {"reads_bodies": True, **WHY}))["reads_bodies"]
    roles = {each["name"]: each["reads_bodies"] for each in told(client.get("/roles"))["roles"]}
    assert roles == {"viewer": False, "operator": True, "administrator": True}
    entry = Entry.objects.get(action="role.change")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["reads bodies"], entry.after["reads bodies"]) == (False, True)


def test_tokens_of_all_users_are_listed_without_their_text_and_revoked(client: ApiClient) -> None:
    token, text = token_for(user("viewer", "leaving"), name="old program")
    listed = client.get("/tokens")
    assert text.encode() not in listed.content
    assert [each["name"] for each in told(listed)["tokens"]] == ["old program", "a program"]
    assert told(client.post(f"/tokens/{token.pk}/revoke", WHY))["state"] == "revoked"
    assert ApiClient(text).get("/token").status_code == 401
    assert Entry.objects.get(action="token.revoke").why == WHY["why"]
    assert ApiToken.objects.get(pk=token.pk).revoked_at is not None


def test_a_locked_account_is_unlocked_and_a_name_that_is_no_user_is_not_shown(client: ApiClient) -> None:
    user("viewer", "locked")
    for name in ("locked", "a password in the wrong field"):
        AccessAttempt.objects.create(
            username=name, ip_address="192.0.2.7", failures_since_start=settings.AXES_FAILURE_LIMIT, get_data="", post_data=""
        )  # fmt: skip
    locks = told(client.get("/locks"))["locks"]
    assert {each["user"] for each in locks} == {"locked", ""}
    one = next(each for each in locks if each["user"])
    assert one["locked_until"] is not None
    told(client.post(f"/locks/{one['id']}/unlock", WHY))
    assert [each["user"] for each in told(client.get("/locks"))["locks"]] == [""]
    assert Entry.objects.get(action="sign_in.lock.delete").subject == "locked at 192.0.2.7"
