"""Private keys, passwords and secrets of webhooks: where they may be, and that they are nowhere else afterwards.

After each request the whole database, all lines of the log and all answers are searched for the secret.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import override_settings

from appliance.api import idempotency
from appliance.api.models import KeptAnswer
from appliance.api.operation import OPERATIONS
from appliance.audit.models import Entry
from appliance.webhooks.models import Webhook
from mailcore.control.protocol.kept import OPERATIONS as OF_KEPT
from mailcore.control.protocol.users import OPERATIONS as OF_USERS
from mailcore.faults import Code
from tests.answers import Exactly
from tests.appliance.api.asking import ApiClient, client_with
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db
SECRET = "correct-horse-9f31c7"
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
WHY = "a test"
USER = {"name": "kim@example.org", "enabled": True, "verifier": "argon2id", "senders": ["*"], "revision": "0" * 16}
CERTIFICATE = {"name": "mx", "certificate": "PEM", "key": KEY, "why": WHY}
KEPT_PUT = {"kind": "certificate", "name": "mx", "text": "PEM", "key": KEY}
HOOK = {"name": "billing", "url": "https://hooks.example/x", "why": WHY}
# address -> the body with a secret in it, and the argument that has it
GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "/certificates": (CERTIFICATE, "key"),
    "/mail-users": ({"name": "kim@example.org", "password": SECRET, "why": WHY}, "password"),
    "/mail-users/change": ({"name": "kim@example.org", "password": SECRET, "scram": True, "why": WHY}, "password"),
    "/control/kept_put": ({"arguments": KEPT_PUT, "why": WHY}, "key"),
    "/control/user_put": ({"arguments": {"name": "kim", "password": SECRET}, "why": WHY}, "password"),
    "/control/user_put?": ({"arguments": {"name": "kim", "new": True, "verifier": SECRET}, "why": WHY}, "verifier"),
}
GOOD = {"faults": [], "file": "kept:certificate/mx.1", "user": USER}
FAULTY = {"faults": [{"key": "key", "reason": "does not belong to the first certificate"}]}
ANSWERS: dict[str, Any] = {
    "done": GOOD,
    "faults": FAULTY,
    "refused": Refusal("try again", Code.CONFLICT, "name"),
    "not known": Refusal("the manager ended", Code.OUTCOME_UNKNOWN),
    "a bug": Exactly(nonsense=1),
}


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def in_database() -> Iterator[tuple[str, str]]:
    """Each table with all that is in it; kept frames decoded."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            for row in cursor.fetchall():
                yield table, repr(row)
    for body in KeptAnswer.objects.values_list("body", flat=True):
        if body.startswith(idempotency.AS_FRAMES):
            yield "kept frames", repr(base64.b64decode(body.removeprefix(idempotency.AS_FRAMES)))


def where_is(secret: str, caplog: pytest.LogCaptureFixture, *answers: Any) -> list[str]:
    """The places that have the secret, whole or its parts in an encoding."""
    forms = {secret, base64.b64encode(secret.encode()).decode()[:-4], secret.encode().hex()}
    places = [*in_database(), ("log", caplog.text), ("log arguments", repr([each.__dict__ for each in caplog.records]))]
    for answer in answers:
        places += [("answer", answer.content.decode("utf-8", "replace")), ("header", repr(answer.headers))]
    return [f"{name}: {text[:300]}" for name, text in places if any(form in text for form in forms)]


def administrator() -> ApiClient:
    return client_with(role="administrator")


def core(answer: Any) -> FakeCore:
    operations = [each.name for each in (*OF_KEPT, *OF_USERS)]
    return FakeCore(dict.fromkeys(operations, answer))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("path", GIVEN)
def test_a_secret_that_is_handed_in_reaches_the_core_and_nothing_else(
    path: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body, argument = GIVEN[path]
    with core(ANSWERS[answer]) as it:
        client = administrator()
        first = client.post(path.rstrip("?"), body, idempotency_key="one")
        again = client.post(path.rstrip("?"), body, idempotency_key="one")
    assert SECRET in it.requests[0].arguments[argument], "the core needs it"
    assert (first.status_code < 300) == (answer == "done" or ("control" in path and answer in ("faults", "a bug"))), (
        first
    )
    assert not where_is(SECRET, caplog, first, again)
    assert Entry.objects.exists(), "the audit log has that it was done"


@pytest.mark.parametrize("path", GIVEN)
def test_a_request_that_is_wrong_repeats_no_secret(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body, argument = GIVEN[path]
    number = 918_273_645
    answers = []
    with core(GOOD):
        client = administrator()
        for wrong in ([SECRET], {SECRET: 1}, SECRET * 100_000, number, f"{SECRET}\x00", f"{SECRET}\ud800"):
            inner = body.get("arguments", body)
            given = {**inner, argument: wrong}
            answers.append(client.post(path.rstrip("?"), body | {"arguments": given} if inner is not body else given))
        answers += [
            client.post(path.rstrip("?"), json.dumps(body)[:-1]),
            client.post(path.rstrip("?"), json.dumps(body).encode("utf-16")),
            client.post(path.rstrip("?"), body | {f"{argument}s": SECRET}),
        ]
        for each in answers:
            assert each.status_code != 500, each.content
    assert not where_is(SECRET, caplog, *answers)
    assert not where_is(str(number), caplog, *answers)


def test_a_password_that_is_made_is_told_once_and_kept_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for path in ("/mail-users", "/mail-users/change"):
        cache.clear()
        body = {"name": "kim@example.org", "make_password": True, "why": WHY}
        with core(GOOD) as it:
            client = client_with(role="administrator", name=f"of {path[-6:]}")
            first = client.post(path, body, idempotency_key="one")
            again = client.post(path, body, idempotency_key="one")
        made = json.loads(first.content)["password"]
        assert len(made) >= 20
        assert first["Cache-Control"] == "no-store"
        assert [each.arguments["password"] for each in it.requests] == [made], "it was made once"
        assert json.loads(again.content)["password"] is None
        assert json.loads(again.content)["user"] == json.loads(first.content)["user"]
        assert not where_is(made, caplog, again)


def test_the_secret_of_a_webhook_is_told_once_when_it_is_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeCore({"events": {"cursor": "1a"}}):
        client = administrator()
        first = client.post("/webhooks", HOOK, idempotency_key="one")
        again = client.post("/webhooks", HOOK, idempotency_key="one")
        assert first.status_code == 201, first.content
        hook = Webhook.objects.get()
        secret = json.loads(first.content)["secret"]
        assert secret == hook.secret
        assert json.loads(again.content)["secret"] is None
        others = [client.get(path) for path in ("/webhooks", f"/webhooks/{hook.pk}", f"/webhooks/{hook.pk}/failures")]
        others.append(client.post(f"/webhooks/{hook.pk}", {"name": "other", "why": WHY}))
        assert [each.status_code for each in others] == [200] * 4
        assert not where_is(secret, caplog, again, *others)
        second = client.post(f"/webhooks/{hook.pk}/secret", {"why": WHY}, idempotency_key="two")
        another = json.loads(second.content)["secret"]
        assert another not in (secret, None)
        repeated = client.post(f"/webhooks/{hook.pk}/secret", {"why": WHY}, idempotency_key="two")
        assert json.loads(repeated.content)["secret"] is None
        assert not where_is(another, caplog, repeated)


def test_a_copy_of_the_database_does_not_let_a_password_be_guessed() -> None:
    """The digest of a request with a password needs the portal's key, which is in a file."""
    body = GIVEN["/mail-users"][0]
    with core(GOOD) as it:
        client = administrator()
        assert client.post("/mail-users", body, idempotency_key="one").status_code == 201
        with override_settings(SECRET_KEY="another key " * 4):
            assert client.post("/mail-users", body, idempotency_key="one").status_code == 409
    assert len(it.requests) == 1


def test_no_answer_has_a_field_for_a_secret_but_those_that_are_told_once() -> None:
    """A new operation whose answer has a password: search for it here, too."""
    names = ("password", "secret", "private")
    found = {
        (each.name, field)
        for each in OPERATIONS
        for field in getattr(each.answer, "__struct_fields__", ())
        if any(name in field for name in names)
    }
    assert found == {
        ("add_mail_user", "password"), ("change_mail_user", "password"), ("make_webhook", "secret"),
        ("make_webhook_secret", "secret"),
    }  # fmt: skip
