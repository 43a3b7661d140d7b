"""The HTTP API with a real core behind the portal: the examples of its page, mail that arrives, changes, crashes, cursors."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from appliance.api.operation import PREFIX
from appliance.api.urls import OPERATIONS
from mailcore.lab.lab import Lab
from tests.appliance.api.access import TABLE
from tests.browser.api_client import Api, token_of
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import PASSWORD, site
from tests.end_to_end.test_kept import AUTHORITY
from tests.eventually import PATIENCE_S, eventually
from tests.running.catcher import Catcher
from tests.running.exported_only import EXPORTING
from tests.running.running_core import route_to
from tests.test_tidy import ROOT, read

DEFER = "reject(1, 450):127.0.0.1:0"
RAW = (
    b"From: <a@sender.example>\r\nTo: <r@caught.example>\r\nDate: Sat, 28 Nov 2026 10:00:00 +0000\r\n"
    b"Message-ID: <one@sender.example>\r\nSubject: as it is\r\n\r\n.\r\n..\r\nGr\xc3\xbc\xc3\x9fe\r\n"
)
WHY = "a test"
# In other tests: what sends and what continues; what needs no core: reports, alerts and most about users (tests/appliance/api).
APART = frozenset(
    (
        "events_stream", "move_shard", "drain_node", "resume_node",
        "message_data", "send", "start_change", "stop_change", "undo_change", "report", "report_table", "report_run",
        "start_report", "stop_report", "change_settings", "change_report_preferences", "change_schedule", "alert",
        "acknowledge_alert", "silence_alert", "end_silence", "test_alerts", "set_password", "remove_second_factor",
        "unlink_user", "delete_user", "revoke_token", "unlock",
        "past_size", "past_messages", "past_message", "certificate_text", "map_text", "dkim_record", "use_dkim_key",
        "add_certificate", "use_kept_file", "remove_kept_file", "delete_webhook",
    )
)  # fmt: skip


async def counted(api: Api, operation: str, filter_: dict[str, Any]) -> dict[str, Any]:
    status, change = await api.ask("POST", "/queue/counts", {"operation": operation, "filter": filter_})
    assert status == 202, change
    return await ended(api, change["tag"])


async def ended(api: Api, tag: str) -> dict[str, Any]:
    """The change, when its count or it is over."""

    async def over() -> dict[str, Any] | None:
        change: dict[str, Any] = (await api.ask("GET", f"/queue/changes/{tag}"))[1]
        return None if change["phase"] in ("counting", "running") else change

    change: dict[str, Any] = await eventually(over, f"the end of {tag}")
    return change


async def test_the_examples_of_the_page_can_be_typed(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", read("docs/api.md"), re.DOTALL)
    assert len(blocks) >= 7
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        await send_deferred(it, 3, "from@sender.example")
        api = await token_of(it, "administrator")
        (tmp_path / ".waypost-token").write_text(f"Authorization: Bearer {api.token}\n")
        environment = os.environ | {"HOME": str(tmp_path), "WAYPOST": it.url("").rstrip("/")}
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert done.stderr == ""
        assert done.stdout.count("queue_ids") == 3, done.stdout
        await it.core.control.close()  # the examples change a setting, for which the control process starts again

        async def all_held() -> bool:
            states = [item["state"] for item in await it.core.listed(sender="from@sender.example")]
            return states == ["held"] * 3

        await it.core.eventually(all_held, "the messages of the examples to be held")
        assert len(await it.core.listed(sender="a@sender.example")) == 4


async def test_a_message_arrives_as_it_was_sent_and_once_for_each_key(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, Catcher() as catcher:
        routes = {"caught.example": catcher.route}
        async with site(tmp_path, lab, SLOW, routes=routes) as it:
            api = await token_of(it, "operator")
            path = "/messages?sender=a@sender.example&recipient=r@caught.example&recipient=s@caught.example"
            first = await api.ask("POST", path, RAW, Idempotency_Key="one")
            assert first[0] == 202, first
            assert await api.ask("POST", path, RAW, Idempotency_Key="one") == first
            await it.core.until_removed(*first[1]["queue_ids"])
            (sender, recipients, data) = catcher.caught[0]
            assert (sender, sorted(recipients)) == ("a@sender.example", ["r@caught.example", "s@caught.example"])
            assert data.endswith(RAW)
            assert data.count(b"Received:") == 1

            parts = {
                "sender": "a@sender.example", "recipients": ["r@caught.example"], "subject": "Gr\u00fc\u00dfe",
                "text": "Hello.\n",
                "attachments": [{"filename": "a.bin", "content": base64.b64encode(bytes(range(256)) * 5_000).decode()}],
            }  # fmt: skip
            status, sent = await api.ask("POST", "/messages", parts)
            assert status == 202, sent
            await it.core.until_removed(*sent["queue_ids"])
            assert len(catcher.caught) == 2, "the repeated request was a message, too"
            message = email.message_from_bytes(catcher.caught[1][2], policy=email.policy.default)
            assert message["Subject"] == "Gr\u00fc\u00dfe"
            (file,) = message.iter_attachments()
            assert file.get_content() == bytes(range(256)) * 5_000
            status, history = await api.ask("GET", f"/queue/messages/{sent['queue_ids'][0]}")
            assert (status, history["state"], history["message"]) == (200, "delivered", None)

            letter = {
                "sender": "a@sender.example", "recipients": ["r@caught.example", "s@caught.example"],
                "subject": "for {{ name }}", "text": "Dear {{name}}\n",
                "variables": {"r@caught.example": {"name": "Ann"}, "s@caught.example": {"name": "Bob"}},
            }  # fmt: skip
            status, apart = await api.ask("POST", "/messages", letter, Idempotency_Key="two")
            assert (status, len(apart["queue_ids"]), apart["unsent"]) == (202, 2, [])
            assert await api.ask("POST", "/messages", letter, Idempotency_Key="two") == (202, apart)
            await it.core.until_removed(*apart["queue_ids"])
            arrived = {
                to: email.message_from_bytes(data, policy=email.policy.default)["Subject"]
                for _, (to,), data in catcher.caught[2:]
            }
            assert arrived == {"r@caught.example": "for Ann", "s@caught.example": "for Bob"}
            status, audit = await api.ask("GET", "/audit?action=message.send")
            assert [entry["words"] for entry in audit["entries"]] == [
                "2 messages",
                *sent["queue_ids"],
                *first[1]["queue_ids"],
            ]
            assert {entry["token"] for entry in audit["entries"]} == {"a program"}


async def test_requests_at_the_same_moment_with_one_key_are_one(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "operator")
        path = "/messages?sender=a@sender.example&recipient=r@example.org"
        answers = await asyncio.gather(*(api.ask("POST", path, RAW, Idempotency_Key="one") for _ in range(12)))
        sent = [answer for status, answer in answers if status == 202]
        assert sent
        assert all(answer == sent[0] for answer in sent)
        assert {status for status, _ in answers} <= {202, 503}, answers
        assert await api.ask("POST", path, RAW, Idempotency_Key="one") == (202, sent[0])

        async def listed() -> bool:
            return bool(await it.core.listed())

        await it.core.eventually(listed, "the message")
        assert [item["queue_id"] for item in await it.core.listed()] == sent[0]["queue_ids"]


async def test_a_portal_that_is_killed_while_it_sends_leaves_one_message_and_says_that_it_does_not_know(
    tmp_path: Path,
) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "operator")
        path = "/messages?sender=a@sender.example&recipient=r@example.org"
        manager = it.core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)  # the message is complete, and its record is not written
        asked = asyncio.create_task(api.ask("POST", path, RAW, Idempotency_Key="invoice-1"))
        try:
            await eventually(lambda: it.core.spool_files() != [], "the message in the spool")
            await it.stop()
            answer = (await asyncio.gather(asked, return_exceptions=True))[0]
            assert isinstance(answer, Exception), answer
        finally:
            os.kill(manager, signal.SIGCONT)
        await it.start()
        status, error = await api.ask("POST", path, RAW, Idempotency_Key="invoice-1")
        assert (status, error["code"]) == (504, "outcome_unknown")
        status, audit = await api.ask("GET", "/audit?action=message.send")
        assert [entry["outcome"] for entry in audit["entries"]] == ["unknown"]
        await it.core.size()
        assert len(await it.core.listed(sender="a@sender.example")) <= 1
        status, _ = await api.ask("POST", path, RAW, Idempotency_Key="invoice-2")
        assert status == 202


async def test_a_change_of_matching_messages_leaves_those_that_came_after_the_count(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "operator")
        old = await send_deferred(it, 3, "from@sender.example")
        others = await send_deferred(it, 1, "other@sender.example")
        change = await counted(api, "delete", {"sender": "from@sender.example"})
        assert (change["phase"], change["matched"], change["matched_recipients"]) == ("counted", 3, 3)
        new = await send_deferred(it, 1, "from@sender.example")
        path = f"/queue/changes/{change['tag']}/start"
        assert (await api.ask("POST", path, {"matched": 4, "why": WHY}))[0] == 409
        both = await asyncio.gather(*(api.ask("POST", path, {"matched": 3, "why": WHY}) for _ in range(2)))
        assert sorted(status for status, _ in both) == [202, 409]
        done = await ended(api, change["tag"])
        assert (done["phase"], done["changed"], done["failed"]) == ("done", 3, 0)
        left = {item["queue_id"] for item in await it.core.listed()}
        assert left == {*new, *others}

        status, undo = await api.ask("POST", f"/queue/changes/{change['tag']}/undo", {"why": "a mistake"})
        assert status == 202, undo
        assert (await ended(api, undo["tag"]))["changed"] == 3

        async def back() -> bool:
            return {item["queue_id"] for item in await it.core.listed()} >= {*old, *new, *others}

        await it.core.eventually(back, "the messages that were deleted")


async def test_a_list_by_cursor_has_each_message_once_and_a_cursor_that_was_changed_is_an_error(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "viewer")
        sent = await send_deferred(it, 7, "from@sender.example")
        seen: list[str] = []
        cursors: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            status, page = await api.ask("GET", f"/queue/messages?limit=2&cursor={cursor}")
            assert status == 200, page
            seen += [item["queue_id"] for item in page["items"]]
            cursor = page["cursor"]
            cursors += [cursor] if cursor else []
        assert sorted(seen) == sorted(sent)
        assert cursors
        for wrong in (
            "x",
            "-1",
            "%00",
            "%ff",
            cursors[0] + "x",
            cursors[0][:-1],
            cursors[0][::-1],
            "9" * 200,
            "retry.600:-5",
        ):
            status, answer = await api.ask("GET", f"/queue/messages?cursor={wrong}")
            assert status in (200, 422), answer
            if status == 200:
                assert {item["queue_id"] for item in answer["items"]} <= set(sent)


async def test_every_answer_is_of_the_type_that_the_description_names(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "administrator")
        (queue_id, *_) = await send_deferred(it, 2, "from@sender.example")
        destination = route_to(lab, 0)
        status, held = await api.ask(
            "POST", "/queue/changes", {"operation": "hold", "queue_ids": [queue_id], "why": WHY}
        )
        assert (status, held["changed"]) == (200, 1)
        change = {"parameter": "destination_concurrency_limit", "value": 3}
        asked: dict[str, Any] = {
            "suspend": {"destination": destination, "for_s": 60, "why": WHY},
            "resume": {"destination": destination, "why": WHY},
            "set_parameters": {"scope": destination, "changes": [change], "for_s": 60, "why": WHY},
            "count_messages": {"operation": "hold", "filter": {}},
            "check_parameters": {"scope": destination, "changes": [change]},
            "what_if": {"scope": destination, "changes": [change], "duration_s": 60},
            "check_settings": {"changes": [{"key": ["relay", "domains"], "value": ["a.example"]}]},
            "effects_of_settings": {"changes": [{"key": ["relay", "domains"], "value": ["a.example"]}]},
            "silence_rule": {"for_s": 60, "why": WHY},
            "create_user": {"username": "anna", "password": f"{PASSWORD} of anna", "why": WHY},
            "change_role": {"reads_bodies": False, "why": WHY},
            "change_user": {"last_name": "Berg", "why": WHY},
            "make_certificate": {"names": ["mx.example.org"], "why": WHY},
            "request_certificate": {"names": ["new.example.org"], "why": WHY},
            "make_dkim_key": {"domain": "example.org", "selector": "s1", "algorithm": "ed25519", "why": WHY},
            "put_map": {"name": "a", "place": "rewriting.virtual_alias_maps", "text": "a@b.example c@d.example", "why": WHY},
            "add_mail_user": {"name": "kim@example.org", "make_password": True, "why": WHY},
            "change_mail_user": {"name": "kim@example.org", "password": f"{PASSWORD} of kim", "why": WHY},
            "remove_mail_user": {"name": "kim@example.org", "why": WHY},
            "make_webhook": {"name": "one", "url": "http://127.0.0.1:9/", "why": WHY},
            "change_webhook": {"tag": "news", "why": WHY},
            "make_webhook_secret": {"why": WHY},
            "pause_webhook": {"why": WHY},
            "resume_webhook": {"why": WHY},
            "move_webhook": {"place": "now", "why": WHY},
            "test_webhook": {"why": WHY},
            "change_messages": {"operation": "release", "queue_ids": [queue_id], "why": WHY},
        }  # fmt: skip
        types = {each.name: each for each in OPERATIONS if each.tag != "Command line"}  # test_remote.py has those
        answered = set()
        for name, body in asked.items():
            status, answer = await api.ask("POST", TABLE[name][1], body)
            assert status in (200, 201, 202), (name, answer)
            msgspec.convert(answer, types[name].answer)
            answered.add(name)
        assert (await ended(api, answer["tag"]))["phase"] == "done"
        places = {"queue_id": queue_id, "tag": held["tag"], "number": 1}
        queries = {"search": "?sender=from@sender.example", "resolve": "?address=a@example.org"}
        for name, it_ in types.items():
            if it_.method == "GET" and name not in APART:
                status, answer = await api.ask("GET", it_.path.format(**places) + queries.get(name, ""))
                assert status == 200, (name, answer)
                msgspec.convert(answer, it_.answer)
                answered.add(name)
        assert answered == set(types) - APART
        status, found = await api.ask("GET", "/queue/search?sender=from@sender.example")
        assert queue_id in {each["queue_id"] for each in found["items"]}


async def test_a_certificate_and_a_map_are_kept_used_shown_and_removed_and_no_answer_has_the_key(
    tmp_path: Path,
) -> None:
    issued = AUTHORITY.issue("mx.example.org")
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "administrator")
        said: list[Any] = []

        async def ask(method: str, path: str, body: Any = None, expected: int = 200) -> Any:
            status, answer = await api.ask(method, path, body)
            assert status == expected, (path, answer)
            said.append(answer)
            return answer

        body = {"name": "mx", "certificate": issued.certificate + AUTHORITY.pem, "key": issued.key, "why": WHY}
        made = await ask("POST", "/certificates", body, 201)
        assert made["facts"]["certificate"]["names"] == ["mx.example.org"]
        text = await ask("GET", f"/certificates/text?file={made['file']}")
        assert "BEGIN CERTIFICATE" in text["text"]
        key = await ask("POST", "/dkim-keys", {"domain": "a.example", "selector": "s1", "why": WHY}, 201)
        for path in ("/certificates/text", "/maps/text"):
            status, refused = await api.ask("GET", f"{path}?file={key['file']}")
            assert (status, refused["argument"]) == (422, "file")
        lines = "all@example.org kim@example.org\n"
        place = ["rewriting", "virtual_alias_maps"]
        new = await ask("POST", "/maps", {"name": "all", "place": ".".join(place), "text": lines, "why": WHY}, 201)
        assert (await ask("GET", f"/maps/text?file={new['file']}"))["text"] == lines
        uses = await ask("POST", "/kept-files/use", {"file": new["file"], "place": place})
        revision = (await ask("GET", "/settings"))["revision"]
        assert (await ask("POST", "/settings/check", {"changes": uses["changes"]}))["faults"] == []
        await ask("POST", "/settings", {"changes": uses["changes"], "revision": revision, "why": WHY})
        removal = {"file": new["file"], "why": WHY}
        status, refused = await api.ask("POST", "/kept-files/remove", removal)
        while status in (503, 504):  # the control process starts again, maybe while it answers
            await asyncio.sleep(0.1)
            status, refused = await api.ask("POST", "/kept-files/remove", removal)
        assert (status, refused["code"]) == (409, "conflict"), "it is used"
        secret = "".join(issued.key.splitlines()[1:-1])[30:60]
        database = b"".join(each.read_bytes() for each in it.core.directory.rglob("portal.sqlite3*"))
        assert b"certificate.add" in database
        assert secret not in json.dumps(said)
        assert secret.encode() not in database
        await it.core.control.close()  # the control process starts again


async def test_the_queue_of_a_moment_is_answered_from_events(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, {**EXPORTING, **SLOW}) as it:
        api = await token_of(it, "viewer")
        held = await it.core.send("a@later.example", "b@later.example")
        await it.core.order("hold", held, "wait for her")
        await asyncio.sleep(1.2)
        at = time.time()
        await asyncio.sleep(1.2)
        await it.core.order("delete", held, "not needed")
        status, size = await api.ask("GET", f"/queue/past/size?at={at}")
        assert (status, size["messages"], size["recipients"], size["complete"]) == (200, 1, 2, True), size
        status, page = await api.ask("GET", f"/queue/past/messages?at={at}&recipient=b@later.example")
        assert [(each["queue_id"], each["state"]) for each in page["items"]] == [(held, "held")], page
        assert (await api.ask("GET", f"/queue/past/messages?at={at}&recipient=c@later.example"))[1]["items"] == []
        status, message = await api.ask("GET", f"/queue/past/messages/{held}?at={at}")
        assert (status, message["later"] >= 1) == (200, True), message


async def test_a_whole_message_is_read_by_those_who_may_read_bodies_and_the_audit_has_each(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        sender = await token_of(it, "operator")
        data = RAW + b"x" * 1_000_000 + b"\r\n"
        _, sent = await sender.ask("POST", "/messages?sender=a@sender.example&recipient=r@example.org", data)
        path = f"/queue/messages/{sent['queue_ids'][0]}/data"
        boss = await token_of(it, "administrator")
        assert (await asyncio.to_thread(boss.read, path)).endswith(data)
        status, error = await sender.ask("GET", path)
        assert (status, error["code"]) == (403, "forbidden")
        _, audit = await boss.ask("GET", "/audit?action=message.read_body")
        found = [(entry["who"], entry["outcome"], entry["token"]) for entry in audit["entries"]]
        assert found == [("operator", "refused", "a program"), ("administrator", "done", "a program")]


async def test_the_journal_names_the_user_and_the_reason(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        api = await token_of(it, "operator")
        (queue_id,) = await send_deferred(it, 1, "from@sender.example")
        await api.ask("POST", "/queue/changes", {"operation": "hold", "queue_ids": [queue_id], "why": "by the API"})
        _, message = await api.ask("GET", f"/queue/messages/{queue_id}")
        order = next(event for event in message["history"] if event["event"] == "administrative")
        assert order["operation"] == "hold"
        assert order["who"].startswith("operator (uid ")
        assert order["why"].startswith("by the API (change ")
        assert message["state"] == "held"


async def test_the_pages_of_tokens_and_operations_work_in_the_browser(tmp_path: Path) -> None:
    """A token is made as a person makes it, and used."""
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        page = await it.sign_in_by_form("operator")
        await page.goto(it.url("/accounts/tokens/"))
        await page.click("text=New token")
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
        await page.fill("input[name=name]", "nightly script")
        await page.check("input[name=scopes][value=read]")
        await page.click("main button[type=submit]")
        text = await page.locator("#token").text_content()
        assert text is not None
        api = Api(it, text)
        assert (await api.ask("GET", "/token"))[1]["scopes"] == ["read"]
        await page.goto(it.url("/accounts/tokens/"))
        await page.click("main form button:text-is('Revoke')")
        await page.wait_for_load_state()
        assert (await api.ask("GET", "/token"))[0] == 401
        await page.goto(it.url("/api/v1/"))
        assert f"{PREFIX}/queue/messages/{{queue_id}}" in await page.locator("main").inner_text()
        await page.goto(it.url("/audit/"))
        assert "token.revoke" in await page.locator("main").inner_text()


def test_the_page_names_each_status() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for status in (401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503, 504):
        assert re.search(rf"\| .*\b{status}\b.* \| `", page), status
