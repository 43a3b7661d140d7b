"""Certificates, DKIM keys and maps by the API: what reaches the core, faults at their place, the audit log, other kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api import kept
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.authenticity.key_record import Compared
from mailcore.faults import Code
from tests.appliance.api.asking import ApiClient, client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db
WHY = "a test"
DKIM = {
    "domain": "a.example", "selector": "s1", "algorithm": "rsa-sha256", "record_name": "s1._domainkey.a.example",
    "record": "v=DKIM1; p=x", "strings": ["v=DKIM1; p=x"], "zone_line": "x",
}  # fmt: skip
KEPT = {
    "files": [
        {"file": "kept:certificate/mx.1", "kind": "certificate", "name": "mx", "used": ["[receiver] tls_certificate"]},
        {
            "file": "kept:dkim/s1._domainkey.a.example.2",
            "kind": "dkim",
            "name": "s1._domainkey.a.example",
            "dkim": DKIM,
        },
        {"file": "kept:map/aliases.3", "kind": "map", "name": "aliases", "lines": 2},
    ]
}
USE = {"changes": [{"key": ["receiver", "tls_certificate"], "value": "kept:certificate/mx.1"}], "words": ["x"]}


def administrator() -> ApiClient:
    return client_with({Scope.SETTINGS, Scope.READ}, "administrator")


def test_files_are_listed_by_their_kind() -> None:
    with FakeCore({"kept": KEPT}):
        client = client_with({Scope.READ}, "viewer")
        found = {
            path: json.loads(client.get(path).content)["files"] for path in ("/certificates", "/dkim-keys", "/maps")
        }
    assert {path: [each["name"] for each in files] for path, files in found.items()} == {
        "/certificates": ["mx"], "/dkim-keys": ["s1._domainkey.a.example"], "/maps": ["aliases"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/maps/text", "kept:dkim/s1.2"), ("/maps/text", "kept:certificate/mx.1"), ("/certificates/text", "kept:map/a.3"),
        ("/certificates/text", "kept:dkim/s1.2"), ("/maps/text", "/etc/passwd"), ("/maps/text", "kept:map"),
    ],
)  # fmt: skip
def test_only_a_text_of_its_kind_is_shown(path: str, file: str) -> None:
    with FakeCore({"kept_text": {"text": "secret"}}) as core:
        assert code_of(administrator().get(path, {"file": file})) == (422, "invalid", "file")
        assert not core.requests
        assert (
            json.loads(administrator_of("two").get("/maps/text", {"file": "kept:map/a.3"}).content)["text"] == "secret"
        )


def administrator_of(name: str) -> ApiClient:
    return client_with({Scope.SETTINGS, Scope.READ}, "administrator", name)


def test_a_certificate_is_handed_in_and_the_changes_that_use_it_are_those_of_settings() -> None:
    made = {"faults": [], "file": "kept:certificate/mx.1", "facts": KEPT["files"][0]}
    changed = {"faults": [], "changed": [], "restarts": [], "revision": "f" * 16, "applied": True}
    with FakeCore({"kept_put": made, "kept_use": USE, "settings_change": changed}) as core:
        client = administrator()
        answer = client.post("/certificates", {"name": "MX", "certificate": "PEM", "key": "K", "why": WHY})
        assert answer.status_code == 201, answer.content
        file = json.loads(answer.content)["file"]
        place = {"file": file, "place": ["receiver", "tls_certificate"]}
        changes = json.loads(client.post("/kept-files/use", place).content)["changes"]
        body = {"changes": changes, "revision": "0" * 16, "why": WHY}
        assert client.post("/settings", body).status_code == 200
    given = {"kind": "certificate", "name": "mx", "text": "PEM", "key": "K"}
    assert core.asked("kept_put") == [given]
    assert core.asked("kept_use")[0]["place"] == ["receiver", "tls_certificate"]
    assert core.asked("settings_change")[0]["changes"] == USE["changes"]
    entries = list(Entry.objects.order_by("pk").values_list("action", "subject", "outcome", "words", "why", "token"))
    assert entries[0] == ("certificate.add", "mx", "done", file, WHY, "a program")
    assert [each[0] for each in entries] == ["certificate.add", "settings.change"], "a question is not in it"


@pytest.mark.parametrize(
    ("path", "body", "operation", "action", "given"),
    [
        ("/certificates/self-signed", {"names": ["a.example"]}, "kept_make", "certificate.make",
         {"kind": "certificate", "names": ["a.example"], "days": 397}),
        ("/certificates/request", {"names": ["a.example"]}, "kept_make", "certificate.request",
         {"kind": "request", "names": ["a.example"]}),
        ("/dkim-keys", {"domain": "a.example", "selector": "s1"}, "kept_make", "dkim.make",
         {"kind": "dkim", "domain": "a.example", "selector": "s1", "algorithm": "rsa"}),
        ("/maps", {"name": "a", "place": "recipients.relay_recipient_maps", "text": "x\n"}, "kept_put", "map.put",
         {"kind": "map", "name": "a", "text": "x\n", "form": "recipients"}),
        ("/maps", {"name": "a", "place": "rewriting.virtual_alias_maps", "text": "x\n", "patterns": True}, "kept_put",
         "map.put", {"kind": "map", "name": "a", "text": "x\n", "form": "patterns"}),
        ("/kept-files/remove", {"file": "kept:map/a.3"}, "kept_remove", "kept.remove", {"file": "kept:map/a.3"}),
    ],
)  # fmt: skip
def test_each_change_reaches_the_core_once_and_is_in_the_audit_log(
    path: str, body: dict[str, Any], operation: str, action: str, given: dict[str, Any]
) -> None:
    made = {"faults": [], "file": "kept:x/a.1", "request": "PEM"}
    with FakeCore({operation: made}) as core:
        client = administrator()
        first = client.post(path, body | {"why": WHY}, idempotency_key="one")
        assert first.status_code in (200, 201), first.content
        again = client.post(path, body | {"why": WHY}, idempotency_key="one")
        assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
    assert core.asked(operation) == [given]
    assert core.requests[0].who == "administrator"
    assert list(Entry.objects.values_list("action", "outcome", "why")) == [(action, "done", WHY)]


@pytest.mark.parametrize(
    ("path", "body", "fault", "argument"),
    [
        ("/certificates", {"name": "mx", "certificate": "x", "key": "y"}, "text", "certificate"),
        ("/certificates", {"name": "mx", "certificate": "x", "key": "y"}, "key", "key"),
        ("/maps", {"name": "a", "place": "recipients.relay_recipient_maps", "text": "x"}, "text", "text"),
        ("/dkim-keys", {"domain": "x", "selector": "s1"}, "domain", "domain"),
        ("/certificates/request", {"names": ["x"]}, "something", ""),
    ],
)
def test_a_fault_of_the_core_has_its_place_and_is_recorded_as_refused(
    path: str, body: dict[str, Any], fault: str, argument: str
) -> None:
    faulty = {"faults": [{"key": fault, "reason": "must be another"}]}
    with FakeCore({"kept_put": faulty, "kept_make": faulty}):
        assert code_of(administrator().post(path, body | {"why": WHY})) == (422, "invalid", argument)
    assert Entry.objects.get().outcome == "refused"


@pytest.mark.parametrize(
    ("path", "body", "argument"),
    [
        ("/maps", {"name": "a", "place": "receiver.hostname", "text": ""}, "place"),
        ("/maps", {"name": "a", "place": "route_maps.routes", "text": "", "patterns": True}, "patterns"),
        ("/certificates/self-signed", {"names": []}, "names"), ("/certificates/self-signed", {"names": [""]}, "names[0]"),
        ("/certificates/self-signed", {"names": ["a"], "days": 0}, "days"), ("/dkim-keys", {"domain": "a"}, "selector"),
        ("/dkim-keys", {"domain": "a", "selector": "s", "algorithm": "dsa"}, "algorithm"),
        ("/kept-files/remove", {"file": ""}, "file"), ("/certificates", {"name": "mx", "certificate": ""}, "certificate"),
        ("/certificates", {"name": "mx", "certificate": "x" * 900_001}, "certificate"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_reaches_the_core(path: str, body: dict[str, Any], argument: str) -> None:
    with FakeCore({}) as core:
        assert code_of(administrator().post(path, body | {"why": WHY})) == (422, "invalid", argument)
    assert not core.requests
    assert not Entry.objects.exists()


@pytest.mark.parametrize("elsewhere", ["", "other nodes may keep it"])
def test_an_answer_says_where_else_a_removed_file_may_be(elsewhere: str) -> None:
    with FakeCore({"kept_remove": {"faults": [], "elsewhere": elsewhere}}):
        answer = administrator().post("/kept-files/remove", {"file": "kept:map/a.3", "why": WHY})
    assert json.loads(answer.content) == {"file": "kept:map/a.3", "elsewhere": elsewhere}


def test_a_file_that_is_used_is_not_removed() -> None:
    with FakeCore({"kept_remove": Refusal("kept:map/a.3 is used by rewriting.virtual_alias_maps", Code.CONFLICT)}):
        refused = administrator().post("/kept-files/remove", {"file": "kept:map/a.3", "why": WHY})
    assert code_of(refused)[:2] == (409, "conflict")
    assert Entry.objects.get().outcome == "refused"


def test_a_dkim_key_is_used_when_its_record_is_published_or_one_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Compared("no_record", "publish it")]
    monkeypatch.setattr(kept, "state_of", lambda _: found[0])
    body = {"file": "kept:dkim/s1._domainkey.a.example.2"}
    with FakeCore({"kept": KEPT, "kept_use": USE}) as core:
        client = administrator()
        record = json.loads(client.get("/dkim-keys/record", body).content)
        assert (record["state"], record["record"], record["about"]) == ("no_record", "v=DKIM1; p=x", "publish it")
        assert code_of(client.post("/dkim-keys/use", body)) == (409, "conflict", "unpublished")
        assert not core.asked("kept_use")
        assert client.post("/dkim-keys/use", body | {"unpublished": True}).status_code == 200
        found[0] = Compared("ok", "")
        assert client.post("/dkim-keys/use", body | {"subdomains": True}).status_code == 200
        assert code_of(client.get("/dkim-keys/record", {"file": "kept:dkim/other.2"})) == (404, "not_found", "file")
    assert [each["subdomains"] for each in core.asked("kept_use")] == [False, True]
