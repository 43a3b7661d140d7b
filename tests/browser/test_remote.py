"""``waypost --remote`` against a real portal and core: each command answers what it answers on the host, or refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mailcore.lab.lab import Lab
from tests.browser import site as sites
from tests.browser.api_client import Api, token_of
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import Site, site
from tests.cli.remote_table import ALIKE, CHANGING, KEEPING, SAME
from tests.end_to_end.test_kept import AUTHORITY
from tests.eventually import PATIENCE_S, eventually
from tests.running.running_core import route_to
from tests.test_tidy import ROOT

DEFER = "reject(1, 450):127.0.0.1:0"
# What differs between two answers of one Waypost on the same host: times, ages, counts of what the command itself did.
MOVING = re.compile(
    r"\b(?:\d+[smhdw])+\b|\b\d+(?:\.\d+)?(?:[smhd]\b| seconds?\b| minutes?\b)|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?|"
    r"\b\d{10}\.\d+\b|\d+ bytes|[0-9.]+ [kMG]?B\b|\b\d\d:\d\d(?::\d\d)?\b|\b[0-9a-f]{16}\b"
)


class Commands:
    """``waypost`` on the host, and from elsewhere with the token of a user."""

    def __init__(self, it: Site, api: Api, directory: Path) -> None:
        self.site = it
        self.directory = directory
        self.token_file = directory / "token"
        self.token_file.touch(0o600)
        self.token_file.write_text(api.token + "\n")
        self.away = directory / "elsewhere"
        self.away.mkdir(exist_ok=True)

    async def here(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        config = str(self.site.core.directory / "waypost.toml")
        return await asyncio.to_thread(self._run, [*words, "--config", config], self.directory, text)

    async def remote(
        self, *words: str, text: str = "", before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        options = ("--remote", self.site.url("").rstrip("/"), "--token-file", str(self.token_file), *before)
        return await asyncio.to_thread(self._run, [*options, *words], self.away, text)

    def _run(self, words: list[str], directory: Path, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: PLW1510  # its status is looked at
            [sys.executable, "-m", "mailcore.cli.main", *words], cwd=directory, env=environment(), input=text,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}


@asynccontextmanager
async def commands(tmp_path: Path, role: str = "administrator") -> AsyncIterator[tuple[Commands, list[str], str]]:
    """The commands, the queue ids of deferred mail, and its destination."""
    async with Lab([DEFER]) as lab, site(tmp_path, lab, SLOW) as it:
        ids = await send_deferred(it, 3, "from@sender.example")
        yield Commands(it, await token_of(it, role), tmp_path), list(ids), route_to(lab, 0)


@pytest.fixture(autouse=True)
def own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the portal pass on the words of the core, which are compared here."""
    monkeypatch.setattr(sites, "REWORDED", sites.REWORDED.replace("\nreword()\n", "\n"))


def steady(text: str) -> str:
    """The output without what moves."""
    return MOVING.sub("#", text)


@pytest.mark.parametrize("lines", [SAME[::3], pytest.param(SAME, marks=pytest.mark.long)], ids=["some", "all"])
async def test_each_look_answers_what_it_answers_on_the_host(tmp_path: Path, lines: Sequence[str]) -> None:
    wrong = []
    async with commands(tmp_path) as (run, ids, destination):
        for line in lines:
            words = line.format(id=ids[0], other=ids[1], destination=destination).split()
            here, there = await run.here(*words), await run.remote(*words)
            if words[0] == "status":
                there.stderr = re.sub(r".*problems of files.*\n", "", there.stderr)
            if (here.returncode, steady(here.stdout), steady(here.stderr)) != (
                there.returncode, steady(there.stdout), steady(there.stderr),
            ):  # fmt: skip
                wrong.append(f"{line}\n--- here {here.returncode}\n{here.stdout}{here.stderr}\n"
                             f"--- remote {there.returncode}\n{there.stdout}{there.stderr}")  # fmt: skip
        for line in ALIKE:
            here = json.loads((await run.here(*line.split())).stdout)
            there = json.loads((await run.remote(*line.split())).stdout)
            assert here.keys() == there.keys(), line
            assert there.get("error") is None
    assert not wrong, "\n\n".join(each[:2000] for each in wrong)


async def test_each_change_is_made_and_is_in_the_audit_log_with_user_and_token(tmp_path: Path) -> None:
    async with commands(tmp_path) as (run, ids, destination):
        api = await token_of(run.site, "administrator")
        for line, (status, expected, action) in CHANGING.items():
            words = line.format(id=ids[0], other=ids[1], third=ids[2], destination=destination).split()
            done = await run.remote(*words, "--why", "by the test", text="From: a@sender.example\n\nHello.\n")
            assert (done.returncode, bool(re.search(expected, done.stdout))) == (status, True), (line, done)
            _, audit = await api.ask("GET", "/audit?limit=1")
            entry = audit["entries"][0]
            found = (entry["action"], entry["who"], entry["token"], entry["outcome"], entry["why"])
            assert found == (action, "administrator", "a program", "done", "by the test"), line


@pytest.mark.long
async def test_files_and_users_are_kept_from_elsewhere_and_no_secret_is_left_in_the_portal(tmp_path: Path) -> None:
    issued = AUTHORITY.issue("mx.example.org")
    passwords = ("correct-horse-9f31c7", "battery-staple-77aa")
    places = {"cert": tmp_path / "chain.pem", "key": tmp_path / "key.pem", "map": tmp_path / "map.txt"}
    places["cert"].write_text(issued.certificate + AUTHORITY.pem)
    places["key"].write_text(issued.key)
    places["map"].write_text("all@example.org kim@example.org\n")
    file, said = "", ""
    async with commands(tmp_path) as (run, *_):
        api = await token_of(run.site, "administrator")
        entries = (await api.ask("GET", "/audit?limit=500"))[1]["entries"]
        for line, expected, actions in KEEPING:
            words = line.format(**places, file=file).split()
            done = await run.remote(*words, text=f"{passwords['--scram' in line]}\n")
            assert (done.returncode, expected in done.stdout) == (0, True), (line, done)
            if found := re.search(r"kept:map/\S+", done.stdout + str((await run.remote("map", "list")).stdout)):
                file = found.group()
            said += done.stdout + done.stderr
            before, entries = len(entries), (await api.ask("GET", "/audit?limit=500"))[1]["entries"]
            new = list(reversed(entries[: len(entries) - before]))
            assert [each["action"] for each in new] == actions.split(), line
            assert {each["outcome"] for each in new} <= {"done"}, line
        listed = (await run.remote("user", "list", "--json")).stdout
        assert "kim" not in listed
        assert "mx.example.org" in (await run.here("certificate", "list")).stdout
        database = b"".join(each.read_bytes() for each in run.site.core.directory.rglob("*.sqlite3*"))
        log = b"".join(each.read_bytes() for each in run.site.core.directory.rglob("*.log"))
        assert b"kim@example.org" in database
        for secret in (*passwords, "".join(issued.key.splitlines()[1:-1])[30:60]):
            assert secret.encode() not in database + log + said.encode()


async def test_events_are_followed_from_elsewhere_as_they_happen(tmp_path: Path) -> None:
    async with commands(tmp_path, "viewer") as (run, ids, _):
        oldest = await run.remote("events", "--json", "--kind", "accepted")
        told = [json.loads(line) for line in oldest.stdout.splitlines()]
        assert {each.get("queue_id") for each in told[:-1]} == set(ids)
        options = ("--remote", run.site.url("").rstrip("/"), "--token-file", str(run.token_file))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mailcore.cli.main", *options, "events", "--follow", "--json", "--kind", "accepted",
            "--after", told[-1]["end"]["cursor"], cwd=run.away, env=environment(), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            (new,) = await send_deferred(run.site, 1, "later@sender.example")
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
            assert json.loads(line)["queue_id"] == new
        finally:
            process.kill()
            await process.wait()


async def test_a_viewer_looks_and_changes_nothing(tmp_path: Path) -> None:
    async with commands(tmp_path, "viewer") as (run, ids, _):
        assert (await run.remote("queue", "list")).returncode == 0
        for words in (("queue", "hold", ids[0]), ("queue", "data", ids[0]), ("settings", "set", "relay.domains", "[]")):
            refused = await run.remote(*words)
            assert (refused.returncode, refused.stdout) == (1, ""), refused
            assert "permission" in refused.stderr or "role" in refused.stderr, refused
        states = [item["state"] for item in await run.site.core.listed()]
        assert states == ["deferred"] * 3


async def test_a_command_that_is_repeated_with_its_key_is_done_once(tmp_path: Path) -> None:
    async with commands(tmp_path) as (run, *_):
        words = ("inject", "--from", "a@sender.example", "--to", "r@example.org")
        key = ("--request-key", "invoice-4711")
        first = await run.remote(*words, text="Subject: one\n\nHello.\n", before=key)
        again = await run.remote(*words, text="Subject: one\n\nHello.\n", before=key)
        assert first.returncode == 0, first
        assert again.stdout == first.stdout
        other = await run.remote(*words, text="Subject: two\n\nHello.\n", before=key)
        assert other.returncode == 1
        assert "another request" in other.stderr
        assert len(await run.site.core.listed(sender="a@sender.example")) == 1


async def test_an_interrupted_change_names_its_key_and_is_not_made_twice(tmp_path: Path) -> None:
    async with commands(tmp_path) as (run, *_):
        manager = run.site.core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)  # the message is complete, and its record is not written
        text = "Subject: one\n\nHello.\n"
        words = ("inject", "--from", "a@sender.example", "--to", "r@example.org")
        options = ("--remote", run.site.url("").rstrip("/"), "--token-file", str(run.token_file))
        try:
            process = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond
                [sys.executable, "-m", "mailcore.cli.main", *options, *words], cwd=run.away, env=environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.close()
            process.stdin = None
            await eventually(lambda: run.site.core.spool_files() != [], "the message in the spool")
            process.send_signal(signal.SIGINT)
            out, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
        finally:
            os.kill(manager, signal.SIGCONT)
        assert (process.returncode, out) == (130, "")
        found = re.search(r"--request-key (\S+)", errors)
        assert found, errors

        async def repeated() -> Any:
            done = await run.remote(*words, text=text, before=("--request-key", found.group(1)))
            return done if done.returncode == 0 else None

        done = await eventually(repeated, "the answer to the first request")

        async def listed() -> bool:
            return bool(await run.site.core.listed(sender="a@sender.example"))

        await run.site.core.eventually(listed, "the message")
        assert [item["queue_id"] for item in await run.site.core.listed(sender="a@sender.example")] == [
            done.stdout.strip()
        ]


async def test_without_the_portal_or_the_core_or_a_valid_token_it_says_so(tmp_path: Path) -> None:
    async with commands(tmp_path) as (run, ids, _):
        os.kill(run.site.core.processes()["manager"], signal.SIGSTOP)
        try:
            os.kill(run.site.core.processes()["control"], signal.SIGSTOP)
            await run.site.stop()
            away = await run.remote("queue", "hold", ids[0])
            assert away.returncode == 3, away
            assert "no portal answers" in away.stderr
        finally:
            for role in ("control", "manager"):
                os.kill(run.site.core.processes()[role], signal.SIGCONT)
        await run.site.start()
        run.token_file.write_text("wpt_unknown\n")
        unknown = await run.remote("queue", "list")
        assert unknown.returncode == 1, unknown
        assert "the token is not valid" in unknown.stderr
