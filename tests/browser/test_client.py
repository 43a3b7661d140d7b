"""The Python client against a real portal and core: lists by cursor, sending, changes, errors by their class."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.browser.api_client import token_of
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import site
from tests.eventually import PATIENCE_S
from tests.test_tidy import ROOT, read

DEFER = "reject(1, 450):127.0.0.1:0"
CLIENT = ROOT / "clients" / "python"
STEPS = """
import os, sys, time
from waypost_client import Conflict, Forbidden, Invalid, NotFound, NotReached, Waypost, models

url, token = os.environ["WAYPOST"], os.environ["TOKEN"]
with Waypost(url, token) as waypost:
    pages = list(waypost.pages(waypost.messages, sender="from@sender.example", limit=2))
    ids = [item.queue_id for page in pages for item in page.items]
    assert len(set(ids)) == len(ids) == 5 and len(pages) >= 3, pages

    body = models.MessageBody(sender="a@sender.example", recipients=["r@example.org"], text="Hello.")
    first = waypost.send(body, key="one")
    assert waypost.send(body, key="one") == first
    raw = b"From: <a@sender.example>\\r\\n\\r\\nHello.\\r\\n"
    assert waypost.send(raw, sender="a@sender.example", recipient=["r@example.org", "s@example.org"]).recipients == 2

    held = waypost.change_messages(models.ChosenBody(operation="hold", queue_ids=ids[:1], why="a test"))
    assert (held.phase, held.changed) == ("done", 1)
    message = waypost.message(ids[0])
    assert message.state == "held" and isinstance(message.history[0], models.Accepted), message
    released = waypost.change_messages(models.ChosenBody(operation="release", queue_ids=ids[:1], why="a test"))
    assert released.changed == 1
    retried = waypost.change_messages(models.ChosenBody(operation="retry", queue_ids=ids[1:], why="a test"))
    assert retried.changed == 4

    chosen = models.FilterBody(sender="from@sender.example")
    change = waypost.count_messages(models.CountBody(operation="hold", filter=chosen))
    while change.phase == "counting":
        time.sleep(0.1)
        change = waypost.change(change.tag)
    assert change.matched == 5
    change = waypost.start_change(change.tag, models.StartChangeBody(matched=5, why="a test"))
    while change.phase == "running":
        time.sleep(0.1)
        change = waypost.change(change.tag)
    assert (change.phase, change.changed) == ("done", 5)

    def fails(kind, call, *given, **named):
        try:
            call(*given, **named)
        except kind as error:
            return error
        raise AssertionError(f"no {kind.__name__}")

    wrong = models.ChosenBody(operation="hold", queue_ids=["x"], why="a test")
    assert fails(Invalid, waypost.change_messages, wrong).argument == "queue_ids[0]"
    assert fails(NotFound, waypost.message, "0123456789ABCDEF").status == 404
    fails(Conflict, waypost.send, models.MessageBody(sender="", recipients=["r@example.org"], text="x"), key="one")
    fails(Invalid, waypost.messages, sender="")
    assert fails(Forbidden, waypost.users).status == 403
with Waypost(url, "wpt_unknown") as other:
    assert fails(Forbidden, other.own_token).status == 401
with Waypost("http://127.0.0.1:1", token) as nobody:
    fails(NotReached, nobody.own_token)
fails(ValueError, Waypost, "http://mail.example.org", token)
print("done")
"""


async def ran(script: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    named = os.environ | {"PYTHONPATH": str(CLIENT), "HOME": str(tmp_path)} | environment
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], cwd=tmp_path, env=named, capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip


async def test_lists_sending_changes_and_errors(tmp_path: Path) -> None:
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        await send_deferred(it, 5, "from@sender.example")
        api = await token_of(it, "operator")
        done = await ran(STEPS, tmp_path, WAYPOST=it.url("").rstrip("/"), TOKEN=api.token)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert len(await it.core.listed(sender="a@sender.example")) == 2


async def test_the_example_of_the_page_can_be_run(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", read("docs/api.md"), re.DOTALL)
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        await send_deferred(it, 2, "from@sender.example")
        api = await token_of(it, "operator")
        (tmp_path / ".waypost-token").write_text(f"Authorization: Bearer {api.token}\n")
        done = await ran(example, tmp_path, WAYPOST=it.url("").rstrip("/"))
        assert done.returncode == 0, done.stderr
        assert re.search(r"\['[0-9A-Z]{13,20}'\]\n[23]\n", done.stdout), done.stdout
