"""Settings that are changed by command while mail flows: checked, in force within seconds, recorded, returned to.

law: managed-is-a-layer.
"""

from __future__ import annotations

import asyncio
import json
import smtplib
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import COMMAND
from tests.end_to_end.test_reload import Clients, session
from tests.eventually import PATIENCE_S
from tests.running.running_core import SENDER, RunningCore, route_to, running


def run(core: RunningCore, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *arguments, "--config", str(core.config)],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


async def changed(core: RunningCore, *arguments: str) -> str:
    done = await asyncio.to_thread(run, core, "settings", *arguments, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    await core.control.close()
    return done.stdout


async def known(core: RunningCore) -> dict[str, Any]:
    found: dict[str, Any] = await core.insist(lambda: core.ask("settings"))
    return found


def accepted(core: RunningCore, recipient: str) -> int:
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        client.mail(SENDER)
        return client.rcpt(recipient)[0]


async def test_a_change_is_in_force_when_the_command_ends_and_nothing_is_lost(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        first, second = route_to(lab, 0), route_to(lab, 1)
        async with running(tmp_path, lab, {"relay": {"networks": ["127.0.0.0/8"]}}, routes={"*": first}) as core:
            with Clients(core.port) as clients:
                out = await changed(core, "set", 'routes."*"', second, "--why", "the other one")
                assert out.splitlines() == [f"[routes] *: {first} -> {second}", "restarts: manager, control"]
                await changed(core, "set", "relay.domains", "['mine.example']")
                await changed(core, "set", "transports.smtp.tls", "none")
                await changed(core, "unset", "transports.smtp.tls")
            assert clients.wrong == []
            await core.until_empty()
            arrived = Counter(arrival.id for arrival in lab.messages)
            assert set(clients.acknowledged) <= set(arrived)
            assert max(arrived.values()) == 1
            state = await known(core)
            assert state["in_force"]
            origins = {tuple(each["key"]): (each["value"], each["origin"], each["below"]) for each in state["settings"]}
            assert origins["routes", "*"] == (second, "managed", first)
            assert origins["relay", "domains"] == (["mine.example"], "managed", None)
            assert origins["relay", "networks"] == (["127.0.0.0/8"], "file", None)
            await core.again()
            assert (await core.ask("resolve", address="a@b.example"))["destination"] == second
            history = (await core.ask("settings_history"))["states"]
            assert [each["why"] for each in history] == ["", "", "", "the other one"]
            assert all("uid" in each["who"] for each in history)
            await changed(core, "return", history[-1]["revision"])
            assert not any(each["key"] == ["relay", "domains"] for each in (await known(core))["settings"])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("relay.domains", "['not a domain']", "relay.domains"),
        ("relay.networks", "7", "relay.networks"),
        ("nothing.here", "1", "nothing"),
        ("home", "/elsewhere", "home can't be managed here"),
        ("queue_directory", "/elsewhere", "can't be managed here: mail is there"),
        ("control.group", "staff", "it says who may change what"),
        ("portal.manages", "true", "it says who may manage"),
        ("receiver.tls_key", "/etc/shadow", "it names a file"),
        ("client_auth.password_file", "/etc/shadow", "it names a file"),
        ("rewriting.virtual_alias_maps", "['/etc/shadow']", "it names a file"),
        ("alerts.webhook_secret_file", "/etc/shadow", "it names a file"),
        ("export.enabled", "true", "it needs a restart"),
        ('routes."*"', "nowhere:x", "routes.*"),
    ],
)
async def test_what_is_refused_changes_nothing(tmp_path: Path, key: str, value: str, words: str) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        before = core.processes()
        done = await asyncio.to_thread(run, core, "settings", "set", key, value, "--yes")
        assert done.returncode == 2, done.stdout + done.stderr
        assert words in done.stderr
        assert not (core.home / "managed.toml").exists()
        assert core.processes() == before


async def test_what_was_changed_by_hand_or_by_another_is_not_overwritten(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        revision = (await known(core))["revision"]
        change: dict[str, Any] = {"changes": [{"key": ["relay", "domains"], "value": ["mine.example"]}]}
        with core.config.open("a") as file:
            file.write("[bounce]\nbounce_size_limit = 40000\n")
        with pytest.raises(ControlError, match="changed meanwhile"):
            await core.ask("settings_change", **change, revision=revision)
        state = await known(core)
        assert (state["in_force"], state["waiting"]) == (False, ["[bounce] bounce_size_limit"])
        answers = await asyncio.gather(
            core.ask("settings_change", **change, revision=state["revision"]),
            asyncio.to_thread(run, core, "settings", "set", "relay.domains", "['other.example']", "--yes"),
            return_exceptions=True,
        )
        text = (core.home / "managed.toml").read_text()
        assert ("mine.example" in text) != ("other.example" in text), answers


async def test_a_managed_file_with_a_fault_is_named_with_its_line_and_stops_no_process(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        managed = core.home / "managed.toml"
        managed.write_text("# by hand\n[relay]\ndomains = 7\n[receiver]\ntls_key = 'x'\n")
        done = await asyncio.to_thread(run, core, "reload")
        assert done.returncode == 2
        assert f"{managed}:3: [relay] domains must be" in done.stderr
        assert f"{managed}:5: [receiver] tls_key can't be managed here" in done.stderr
        await core.kill("receiver.0")
        assert "managed.toml:3" in (await known(core))["fault"]
        managed.write_text("[relay\n")
        done = await asyncio.to_thread(run, core, "check-config")
        assert done.returncode == 2
        assert str(managed) in done.stderr


async def test_a_route_of_the_file_is_removed_and_returned(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        first, second = route_to(lab, 0), route_to(lab, 1)
        async with running(tmp_path, lab, routes={"*": first, "b.example": second}) as core:
            before = core.config.read_text()
            assert (await core.ask("resolve", address="a@b.example"))["destination"] == second
            out = await changed(core, "remove", 'routes."b.example"', "--why", "it moved")
            assert f"[routes] b.example: {second} -> not set" in out
            assert (await core.ask("resolve", address="a@b.example"))["destination"] == first
            listed = await asyncio.to_thread(run, core, "settings", "list")
            assert f"removed here; the file still has {second}" in listed.stdout
            assert core.config.read_text() == before
            assert await changed(core, "remove", "routes.none") == "nothing changes\n"
            await core.again()
            assert (await core.ask("resolve", address="a@b.example"))["destination"] == first
            await changed(core, "unset", 'routes."b.example"')
            assert (await core.ask("resolve", address="a@b.example"))["destination"] == second


async def test_what_is_tuned_stands_above_a_managed_value_in_the_list(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await changed(core, "set", "transports.smtp.process_limit", "6")
        await core.ask("transport_set", transport="smtp", parameter="process_limit", value=7, for_s=3600.0)
        listed = (await asyncio.to_thread(run, core, "settings", "list")).stdout
        words = " ".join(listed.split()).partition("transports.smtp.process_limit ")[2]
        assert words.startswith("tuned 7 until "), listed
        assert "; below it 6 (managed)" in words


async def test_where_the_file_alone_counts_nothing_is_managed(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {"portal": {"manages": False}}) as core:
        (core.home / "managed.toml").write_text("[relay]\ndomains = ['mine.example']\n")
        assert not (await known(core))["manages"]
        done = await asyncio.to_thread(run, core, "settings", "set", "relay.domains", "['a.example']", "--yes")
        assert done.returncode == 1
        assert "manages is false" in done.stderr
        assert await asyncio.to_thread(run, core, "check-config") is not None
        assert "mine.example" not in (await asyncio.to_thread(run, core, "check-config")).stdout


async def test_control_that_is_killed_behind_the_write_leaves_a_change_that_can_be_brought_into_force(
    tmp_path: Path,
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        state = await known(core)
        (core.home / "managed.toml").write_text("[relay]\ndomains = ['mine.example']\n")  # as if killed before it asked
        assert (await known(core))["waiting"] == ["[relay] domains"]
        assert (await asyncio.to_thread(run, core, "reload")).returncode == 0
        await core.control.close()
        state = await known(core)
        assert state["in_force"]
        assert json.dumps(state)
        (await asyncio.to_thread(session, core)).quit()
