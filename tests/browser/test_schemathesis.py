"""Every operation of the API as Schemathesis tries it, against a portal with a real core: nothing is answered with 5xx.

Schemathesis makes requests out of the description (OpenAPI 3.1), right ones and wrong ones, and compares each answer with what
the description says: its status, its type, its fields. It is a program of its own and no part of the lock, so it gets an
environment of its own:

    python3 -m venv ~/schemathesis && ~/schemathesis/bin/pip install schemathesis==4.32.5
    WAYPOST_SCHEMATHESIS=~/schemathesis/bin/schemathesis ./test --long tests/browser/test_schemathesis.py

Each group of operations (a tag) is a test with a core, a portal and a token of an administrator of its own, so that a slow one
is seen by its name, and what one group changes, no other meets. The requests depend on the seed and on what is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from appliance.api.operation import PREFIX
from appliance.api.urls import OPERATIONS
from mailcore.lab.lab import Lab
from tests.browser.api_client import Api, token_of
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import Site, site
from tests.eventually import eventually
from tests.running.exported_only import EXPORTING
from tests.running.running_core import Sections

COMMAND = os.environ.get("WAYPOST_SCHEMATHESIS") or shutil.which("schemathesis") or ""
EXAMPLES = 25  # of each operation, beside those at the limits of each value
SEED = 16
GROUP_S = 1500  # a group that takes longer is stopped, and fails
REQUEST_S = 60
# Each with what would happen.
LEFT_OUT = {
    "events_stream": "its answer does not end; tests/browser/test_api.py reads it",
    "revoke_token": "it would revoke the token that asks; tests/appliance/api/test_users.py revokes others",
}
# Without missing_required_header: after the hook below, Schemathesis has put the token back that it left out.
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance", "ignored_auth",
)  # fmt: skip
TAGS = list(dict.fromkeys(each.tag for each in OPERATIONS))
MANY: Sections = {**SLOW, **EXPORTING, "portal": {"api_requests_per_minute": 100_000}}
WHY = "a test"


async def fill(it: Site, api: Api) -> dict[str, list[Any]]:
    """Makes one of each kind of thing that requests name; returns the words for it."""
    queue_ids = await send_deferred(it, 3, "from@sender.example")
    at = time.time()

    async def done(path: str, body: Any) -> Any:
        status, answer = await api.ask("POST", path, body)
        assert status < 300, answer
        return answer

    counted = await done("/queue/counts", {"operation": "hold", "filter": {"sender": "from@sender.example"}})
    hook = {"name": "billing", "url": "http://127.0.0.1:9/mail", "kinds": ["bounced"], "why": WHY}
    await done("/webhooks", hook)
    aliases = {"name": "aliases", "place": "rewriting.virtual_alias_maps", "text": "all@example.org a@example.org\n"}
    files = [
        (await done("/maps", {**aliases, "why": WHY}))["file"],
        (await done("/dkim-keys", {"domain": "sender.example", "selector": "s1", "why": WHY}))["file"],
        (await done("/certificates/self-signed", {"names": ["mail.example.org"], "why": WHY}))["file"],
    ]
    await done("/mail-users", {"name": "kim@example.org", "make_password": True, "why": WHY})

    async def told() -> bool:
        return (await api.ask("GET", f"/queue/past/size?at={at}"))[0] == 200

    await eventually(told, "the queue of this moment in the events")
    _, listed = await api.ask("GET", "/destinations")
    _, settings = await api.ask("GET", "/settings")
    return {
        "queue_id": queue_ids,
        "tag": [counted["tag"]],
        "matched": [len(queue_ids)],
        "number": list(range(1, 7)),
        "file": files,
        "destination": [each["name"] for each in listed["destinations"]],
        "revision": [settings["revision"]],
        "at": [int(at) + 1],
        "address": ["from@sender.example", "r0@example.org", "<>", "\u00fc@example.org"],
        "scope": ["smtp"],
        "parameter": ["destination_concurrency_limit", "minimal_backoff_time"],
        "name": ["kim@example.org"],
        "toml": ['[relay]\ndomains = ["example.org"]\n', '[routes]\n"example.org" = "smtp:[127.0.0.1]:9"\n'],
        "username": ["kim", "lee", "\u00fc"],
        "password": ["a long enough password of theirs"],
        "day": ["2026-11-18"],
        "domain": ["sender.example"],
    }


# Where each of these words is put, half of the time. "arguments" are those of the operations for the command line.
PLACES = {
    "queue_id": ("path.queue_id", "body.queue_ids[*]", "body.arguments.queue_ids[*]", "body.arguments.queue_id"),
    "tag": ("path.tag",),
    "matched": ("body.matched",),
    "number": ("path.number",),
    "file": ("query.file", "body.file", "body.arguments.file"),
    "destination": ("query.destination", "body.destination", "body.arguments.destination"),
    "revision": ("body.revision", "body.arguments.revision"),
    "at": ("query.at", "body.arguments.time"),
    "address": (
        "query.address", "query.sender", "query.recipient", "body.sender", "body.recipients[*]", "body.arguments.sender",
        "body.arguments.recipients[*]", "body.arguments.address",
    ),
    "scope": ("query.scope", "body.scope", "body.arguments.scope"),
    "parameter": ("body.changes[*].parameter", "body.arguments.parameter"),
    "name": ("body.name", "body.arguments.name"),
    "toml": ("body.toml",),
    "username": ("body.username",),
    "password": ("body.password", "body.arguments.password"),
    "day": ("path.start", "body.day"),
    "domain": ("body.domain", "body.arguments.domain"),
}  # fmt: skip
# The same key for another request is a conflict, after which an operation is not tried. Keys have tests of their own. A message
# in JSON has its sender in the body, and one with its sender in the address is refused. A change of settings is given in one of
# three forms. None is put into force here, because answers of 503 are right until it is (tests/browser/test_api.py does it).
HOOKS = """
import itertools

import schemathesis

NUMBERS = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and 0 < len(key) <= 100 and key.isascii() and key.isprintable():
        case.headers["Idempotency-Key"] = f"key-{next(NUMBERS)}"
    if case.operation.label == "POST /api/v1/messages" and case.media_type == "application/json" and next(NUMBERS) % 2:
        case.query = {}
    if case.operation.label.startswith("POST /api/v1/settings/") and isinstance(case.body, dict) and "toml" in case.body:
        case.body = {"toml": case.body["toml"]}
"""


def configured(directory: Path, known: dict[str, list[Any]]) -> Path:
    """Writes its settings."""
    (directory / "hooks.py").write_text(HOOKS)
    lines = [f"hooks = {json.dumps(str(directory / 'hooks.py'))}", "[parameters]"]
    for name, places in PLACES.items():
        lines += [f'"{place}" = {{ dictionary = "{name}", probability = 0.5 }}' for place in places]
    for name, values in known.items():
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}"]
    path = directory / "schemathesis.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def tried(tag: str, it: Site, token: str, directory: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """Runs Schemathesis over the operations of a tag."""
    command = [
        COMMAND, "--no-color", "--config-file", str(config), "run", it.url(f"{PREFIX}/openapi.json"),
        "--header", f"Authorization: Bearer {token}", "--include-tag", tag, "--phases", "examples,coverage,fuzzing",
        "--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES), "--seed", str(SEED), "--no-shrink",
        "--continue-on-failure", "--request-timeout", str(REQUEST_S), "--generation-database", "none",
        "--suppress-health-check", "all", "--warnings", "off",
        "--report", "ndjson", "--report-ndjson-path", str(directory / "report.ndjson"),
    ]  # fmt: skip
    for name in LEFT_OUT:
        command += ["--exclude-operation-id", name]
    return subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GROUP_S, check=False
    )


def answers(report: Path) -> dict[str, Counter[int]]:
    """How often each operation answered with each status; 0: not at all."""
    found: dict[str, Counter[int]] = {}
    for line in report.read_text().splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for asked in recorder.get("interactions", {}).values():
            status = (asked.get("response") or {}).get("status_code", 0)
            found.setdefault(recorder["label"], Counter())[status] += 1
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not COMMAND, reason="no schemathesis here; the first lines of this file say how to get it")
@pytest.mark.parametrize("tag", TAGS)
async def test_no_request_of_schemathesis_is_answered_otherwise_than_described(
    tag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, MANY) as it:
        api = await token_of(it, "administrator")
        config = configured(tmp_path, await fill(it, api))
        began = time.monotonic()
        done = await asyncio.to_thread(tried, tag, it, api.token, tmp_path, config)
        took = time.monotonic() - began
        found = answers(tmp_path / "report.ndjson")
        statuses = sum(found.values(), Counter())
        with capsys.disabled():
            print(f"\n    {tag}: {len(found)} operations, {statuses.total()} cases, {took:.0f} s; {words(statuses)}")
        expected = {
            f"{each.method} {PREFIX}{each.path}" for each in OPERATIONS if each.tag == tag and each.name not in LEFT_OUT
        }
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert set(found) == expected
        assert [each for each in found.items() if any(status >= 500 or not status for status in each[1])] == []


def words(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))


def test_what_is_left_out_is_there() -> None:
    assert set(LEFT_OUT) <= {each.name for each in OPERATIONS}
