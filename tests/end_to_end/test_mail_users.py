"""Users are added, changed and removed over the control socket, and can log in, or not, within a second.

law: users-replaced-atomically.
"""

from __future__ import annotations

import asyncio
import json
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from mailcore.users.user_file import read_users
from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_settings import run
from tests.eventually import PATIENCE_S
from tests.receiver.server_in_process import any_certificate
from tests.running.running_core import RunningCore, running

PASSWORD = "a good password"


@asynccontextmanager
async def submission(tmp_path: Path) -> AsyncIterator[tuple[RunningCore, int]]:
    pem, port = certificate(tmp_path, "mail.example.org", 90), free_port()
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, {"receiver": {"tls_certificate": str(pem), "tls_key": str(pem)}}) as core,
    ):
        with core.config.open("a") as file:
            file.write(f"\n[[listener]]\naddress = '127.0.0.1:{port}'\npurpose = 'submission'\n")
        await core.again()
        yield core, port


async def can_log_in(port: int, name: str, password: str = PASSWORD) -> bool:
    def attempt() -> bool:
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            client.starttls(context=any_certificate())
            try:
                client.login(name, password)
            except smtplib.SMTPAuthenticationError:
                return False
            return True

    return await asyncio.to_thread(attempt)


async def until(core: RunningCore, port: int, name: str, can: bool, password: str = PASSWORD) -> None:
    async def seen() -> bool:
        return await can_log_in(port, name, password) is can

    await core.eventually(seen, f"{name} to log in: {can}")


async def test_a_user_logs_in_after_it_was_added_and_not_after_it_was_disabled(tmp_path: Path) -> None:
    async with submission(tmp_path) as (core, port):
        added = await core.ask("user_put", name="Alice@Example.org", new=True, password=PASSWORD, messages_per_hour=5)
        assert added["user"]["senders"] == ["alice@example.org"]
        await until(core, port, "alice@example.org", True)
        revision = added["user"]["revision"]
        disabled = await core.ask("user_put", name="alice@example.org", enabled=False, revision=revision)
        await until(core, port, "alice@example.org", False)
        with pytest.raises(ControlError, match="changed meanwhile"):
            await core.ask("user_put", name="alice@example.org", enabled=True, revision=revision)
        again = {"enabled": True, "password": "another password", "revision": disabled["user"]["revision"]}
        await core.ask("user_put", name="alice@example.org", **again)
        await until(core, port, "alice@example.org", True, "another password")
        answers = [added, disabled, await core.ask("users")]
        assert "$argon2" not in json.dumps(answers)
        assert answers[2]["listeners"] == [f"127.0.0.1:{port}"]
        done = await asyncio.to_thread(run, core, "user", "list")
        assert "alice@example.org" in done.stdout, done.stderr
        done = await asyncio.to_thread(run, core, "user", "remove", "alice@example.org", "--yes")
        assert done.stdout == "user alice@example.org was removed\n", done.stderr
        await until(core, port, "alice@example.org", False, "another password")


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"name": "a b", "password": PASSWORD}, "name"),
        ({"name": "alice", "password": PASSWORD}, "senders"),
        ({"name": "alice", "password": PASSWORD, "senders": ["not an address"]}, "senders"),
        ({"name": "a@example.org", "password": "short"}, "password"),
        ({"name": "a@example.org", "password": "with\x00control"}, "password"),
        ({"name": "a@example.org"}, "password"),
        ({"name": "a@example.org", "verifier": "plain"}, "verifier"),
        ({"name": "there@example.org", "password": PASSWORD}, "name"),
    ],
)
async def test_a_fault_is_at_its_field_and_nothing_is_changed(
    tmp_path: Path, given: dict[str, Any], argument: str
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("user_put", name="there@example.org", new=True, password=PASSWORD)
        before = (core.home / "users.jsonl").read_bytes()
        answer = await core.ask("user_put", new=True, **given)
        assert [each["key"] for each in answer["faults"]] == [argument]
        assert (core.home / "users.jsonl").read_bytes() == before


async def test_a_file_with_a_fault_is_not_written_over(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("user_put", name="there@example.org", new=True, password=PASSWORD)
        file = core.home / "users.jsonl"
        with file.open("a") as opened:
            opened.write("by hand\n")
        with pytest.raises(ControlError, match="correct the file first"):
            await core.ask("user_put", name="other@example.org", new=True, password=PASSWORD)
        found = await core.ask("users")
        assert [each["name"] for each in found["users"]] == ["there@example.org"]
        assert "users.jsonl:3" in found["faults"][0]
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
        assert len(read_users(file)) == 1
