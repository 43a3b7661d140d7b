"""What a change of settings would do, told beforehand by the real core: queued mail, clients of the week, next hops.

law: effects-tell-and-change-nothing.
"""

from __future__ import annotations

import asyncio
import json
import smtplib
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_kept import use
from tests.end_to_end.test_settings import changed, run
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore, route_to, running

SIZE = 30_000
# A message that moves from lane to lane is in neither for a moment.
RESTING: dict[str, dict[str, object]] = {
    "queue": {"retry_ladder_s": [300]},
    "scheduler": {"minimal_backoff_time": 300.0, "maximal_backoff_time": 300.0},
}


def send(core: RunningCore, sender: str, *recipients: str, size: int = 10) -> None:
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.sendmail(sender, list(recipients), b"Subject: x\r\n\r\n" + b"x" * size + b"\r\n")


async def effects(core: RunningCore, changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"key": json.loads(key), "value": value} for key, value in changes.items()]
    found: dict[str, Any] = await core.insist(
        lambda: core.ask("settings_effects", changes=listed, seconds=30.0, **more)
    )
    assert not found["error"]
    return found


async def resting(core: RunningCore, messages: int) -> None:
    """Waits until so many messages are deferred, as a list shows them."""

    async def listed() -> bool:
        return [each["state"] for each in (await core.ask("list"))["items"]] == ["deferred"] * messages

    await core.until(listed, "deferred mail")


def key(*names: str) -> str:
    return json.dumps(names)


async def test_queued_mail_that_would_go_elsewhere_is_counted_by_where_it_goes(tmp_path: Path) -> None:
    dead = f"smtp:[127.0.0.1]:{free_port()}"
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        alive = route_to(lab, 0)
        async with running(tmp_path, lab, RESTING, routes={"*": dead, "kept.example": dead}) as core:
            for number in range(5):
                await asyncio.to_thread(
                    send, core, f"s{number}@client.example", "a@one.example", "b@two.example", "c@kept.example"
                )
            await asyncio.to_thread(send, core, "x@client.example", *(f"r{number}@one.example" for number in range(40)))
            await resting(core, 6)
            before = core.processes(), (core.home / "waypost.toml").exists(), sorted(core.home.rglob("managed*"))
            found = await effects(core, {key("routes", "*"): alive})
            moves = {
                (each["before"], each["after"]): (each["messages"], each["recipients"])
                for each in found["queued"]["moves"]
            }
            assert moves == {(dead, alive): (6, 50)}
            assert (found["queued"]["messages"], found["queued"]["recipients"], found["queued"]["examined"]) == (
                6,
                50,
                6,
            )
            assert found["queued"]["complete"]
            assert found["clients"] is None
            assert (found["hops"]["concerned"], found["hops"]["tried"], found["hops"]["unreachable"]) == (1, 1, [])
            bounced = await effects(core, {key("routes", "two.example"): "error:5.1.2 No such domain"})
            (move,) = bounced["queued"]["moves"]
            assert (move["before"], move["recipients"], move["bounces"]) == (dead, 5, True)
            assert "No such domain" in move["after"]
            by_sender = await effects(core, {key("sender_routes", "s1@client.example"): alive})
            assert by_sender["queued"]["recipients"] == 2  # kept.example has a route of its own
            nothing = await effects(core, {key("queue", "undo_time_s"): 60})
            assert (nothing["queued"], nothing["clients"], nothing["hops"], nothing["not_judged"]) == (
                None,
                None,
                None,
                [],
            )
            assert (
                core.processes(),
                (core.home / "waypost.toml").exists(),
                sorted(core.home.rglob("managed*")),
            ) == before
            # And it is true.
            await changed(core, "set", 'routes."*"', alive)
            assert (
                await asyncio.to_thread(run, core, "queue", "retry", "--all", "--yes", "--why", "now")
            ).returncode == 0
            await core.until(lambda: sum(len(each.recipients) for each in lab.messages) == 50, "what was told")


async def test_clients_of_the_week_that_would_be_refused_are_named_with_the_reason(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        sections = {"relay": {"networks": ["127.0.0.0/8"], "domains": ["mine.example"]}}
        async with running(tmp_path, lab, sections) as core:
            await asyncio.to_thread(send, core, "a@client.example", "a@elsewhere.example")
            await asyncio.to_thread(send, core, "a@client.example", "a@mine.example", size=SIZE)
            await core.until_empty()
            found = await effects(core, {key("relay", "networks"): []})
            (client,) = found["clients"]["clients"]
            assert (client["client_address"], client["messages"], client["certain"]) == ("127.0.0.1", 1, True)
            assert client["example"] == "a@elsewhere.example"
            assert (
                client["reason"]
                == "it is outside [relay] networks, and sends to a domain that is not in [relay] domains"
            )
            assert (found["clients"]["examined"], found["clients"]["complete"]) == (
                2,
                False,
            )  # the records do not reach back a week
            found = await effects(core, {key("receiver", "message_size_limit"): SIZE - 1000})
            (client,) = found["clients"]["clients"]
            assert (client["messages"], client["reason"]) == (1, f"the message is larger than {SIZE - 1000} bytes")
            assert (await effects(core, {key("relay", "domains"): []}))["clients"]["clients"] == []  # the network may
            both = await effects(core, {key("relay", "domains"): [], key("relay", "networks"): ["192.0.2.0/24"]})
            assert both["clients"]["clients"][0]["messages"] == 2
            unknown = await effects(core, {key("receiver", "recipient_limit"): 1})
            assert unknown["not_judged"] == ["[receiver] recipient_limit"]
            # And it is true.
            await changed(core, "set", "relay.networks", "[]")
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                await asyncio.to_thread(send, core, "a@client.example", "a@elsewhere.example")


async def test_events_say_the_same_of_clients_as_the_log(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        sections: dict[str, dict[str, object]] = {
            "relay": {"networks": ["127.0.0.0/8"], "domains": ["mine.example"]},
            "export": {"enabled": True},
        }
        async with running(tmp_path, lab, sections) as core:
            for number in range(30):
                await asyncio.to_thread(send, core, "a@client.example", f"a@elsewhere{number}.example")
            await core.until_empty()
            change: dict[str, Any] = {key("relay", "networks"): []}
            of_log = await effects(core, change)
            done = await asyncio.to_thread(run, core, "export", "--now")
            assert done.returncode == 0, done.stderr
            assert list(core.home.rglob("incoming*.parquet"))
            of_events = await effects(core, change)
            assert of_events["clients"]["clients"][0]["messages"] == 30
            for each in (of_log, of_events):
                each["clients"]["since"] = each["took_s"] = 0.0
            assert of_events == of_log


async def test_next_hops_that_could_not_be_reached_are_tried_and_named(tmp_path: Path) -> None:
    plain = ScriptedServer(keywords=("PIPELINING",))
    gone = free_port()
    async with serving(plain), Lab(["accept:127.0.0.1:0"]) as lab:
        routes = {"plain.example": f"smtp:[127.0.0.1]:{plain.port}", "gone.example": f"smtp:[127.0.0.1]:{gone}"}
        async with running(tmp_path, lab, RESTING, routes={**routes, "*": route_to(lab, 0)}) as core:
            await asyncio.to_thread(send, core, "a@client.example", "a@plain.example", "a@gone.example")
            await core.until(lambda: len(plain.messages) == 1, "the delivery")
            await resting(core, 1)
            sessions = len(plain.sessions)
            found = (await effects(core, {key("transports", "smtp", "tls"): "encrypt"}))["hops"]
            reasons = {each["destination"]: each for each in found["unreachable"]}
            assert found["concerned"] == found["tried"] == 2
            of_plain = reasons[f"smtp:[127.0.0.1]:{plain.port}"]
            assert "TLS is required, but was not offered" in of_plain["reason"]
            assert (of_plain["now"], of_plain["week"], of_plain["policy"]) == ("", 1, "encrypt: [transports.smtp]")
            of_gone = reasons[f"smtp:[127.0.0.1]:{gone}"]
            assert "refused" in of_gone["now"]  # so the change is not to blame
            assert of_gone["queued"] == 1
            assert len(plain.messages) == 1
            assert len(plain.sessions) > sessions
            fewer = (await effects(core, {key("transports", "smtp", "tls"): "encrypt"}, hops=1))["hops"]
            assert (fewer["tried"], len(fewer["not_tried"])) == (1, 1)


async def test_queued_mail_that_a_key_would_sign_is_counted_before_the_key_goes(tmp_path: Path) -> None:
    dead = f"smtp:[127.0.0.1]:{free_port()}"

    def of(author: str, size: int = 10) -> None:
        with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
            data = f"From: {author}\r\nSubject: x\r\n\r\n.dot\r\n{'x' * 70}\r\n".encode() + b"y" * size
            client.sendmail("s@client.example", ["a@one.example"], data + b"\r\n")

    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, RESTING, routes={"*": dead}) as core:
        first, second = [
            await core.ask("kept_make", kind="dkim", domain="ours.example", selector=selector)
            for selector in ("s1", "s2")
        ]
        await use(core, first["file"], "dkim")
        for author, size in (
            ("Kim <kim@ours.example>", 10),
            ("kim@ours.example", 400_000),
            ("kim@sub.ours.example", 10),
            ("kim@other.example", 10),
            ("a@ours.example, b@ours.example", 10),
        ):
            await asyncio.to_thread(of, author, size)
        await resting(core, 5)
        removed = (await core.ask("kept_use", file=first["file"], remove=True))["changes"]
        found = await core.insist(lambda: core.ask("settings_effects", changes=removed, seconds=30.0))
        signatures = found["signatures"]
        assert (signatures["examined"], signatures["complete"], signatures["unread"]) == (5, True, 0)
        record = "s1._domainkey.ours.example"
        gone = {"domain": "ours.example", "before": [record], "after": [], "messages": 2}
        assert (signatures["changes"], signatures["messages"]) == ([gone], 2)
        assert (found["not_judged"], found["queued"], found["clients"]) == ([], None, None)
        entry = next(each for each in (await core.ask("settings"))["settings"] if each["key"] == ["dkim"])["value"][0]
        wider = [entry | {"key": second["file"], "subdomains": True}]
        found = await effects(core, {key("dkim"): wider})
        new = f"{record} (another key)"
        assert found["signatures"]["changes"] == [
            {"domain": "ours.example", "before": [record], "after": [new], "messages": 2},
            {"domain": "sub.ours.example", "before": [], "after": [record], "messages": 1},
        ]
        assert (await effects(core, {key("relay", "domains"): ["x.example"]}))["signatures"] is None
        done = await asyncio.to_thread(run, core, "settings", "unset", "dkim", "--dry-run")
        assert "signatures: 2 messages leave with other ones or none, of 5 queued messages" in done.stdout
        assert f"ours.example: {record} -> no signature: 2 messages" in done.stdout


async def test_the_command_shows_the_effects_and_asks_for_one_thing(tmp_path: Path) -> None:
    dead = f"smtp:[127.0.0.1]:{free_port()}"
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, RESTING, routes={"*": dead}) as core:
        await asyncio.to_thread(send, core, "s@client.example", "a@one.example")
        await resting(core, 1)
        done = await asyncio.to_thread(run, core, "settings", "set", 'routes."*"', route_to(lab, 0), "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "queue: 1 recipient of 1 message go elsewhere, of 1 queued message" in done.stdout
        assert f"    {dead} -> {route_to(lab, 0)}: 1 recipient" in done.stdout
        assert "next hops: 1 next hop concerned, 1 tried, 0 can't be reached" in done.stdout
        done = await asyncio.to_thread(
            run, core, "settings", "set", 'routes."*"', route_to(lab, 0), "--dry-run", "--json"
        )
        assert json.loads(done.stdout)["effects"]["queued"]["recipients"] == 1
        with pytest.raises(ControlError, match="must be given"):
            await core.ask("settings_effects")
        with pytest.raises(ControlError, match="must be given"):
            await core.ask("settings_effects", changes=[{"key": ["relay", "domains"], "value": []}], to="0" * 16)
