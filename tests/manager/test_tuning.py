"""Suspending, resuming and tuning live: in force at once, kept over restarts, each value with its origin. Scheduled mail."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.eventually import LOOK_EVERY_S
from tests.faults import refused
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

FEEDBACK = "destination_concurrency_positive_feedback"


async def test_a_suspension_holds_over_a_restart_and_ends_by_itself(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        destination = route_to(lab, 0)
        until = time.time() + 6
        await core.ask("suspend", destination=destination, until=until)
        await core.send("a@example.org")
        await core.kill("manager")
        suspended = (await core.ask("destinations"))["suspended"]
        assert suspended == {destination: pytest.approx(until, abs=0.01)}
        assert not lab.messages
        await lab.wait_for(1)
        assert lab.messages[0].at >= until - 0.1
        await core.until_empty()
        await core.ask("suspend", destination="smtp:other.example", until=time.time() + 60)
        assert destination not in (core.home / "tuned.toml").read_text()  # what is over is forgotten


async def test_a_suspension_without_end_ends_with_a_resume(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        destination = route_to(lab, 0)
        answer = await core.ask("suspend", destination=destination.replace("smtp:[", "smtp:["))
        assert answer["value"] is None
        await core.again()
        await core.send("a@example.org")
        assert (await core.ask("destinations"))["suspended"] == {destination: None}
        await core.ask("resume", destination=destination)
        await core.until_empty()
        assert (await core.ask("destinations"))["suspended"] == {}
        assert len(lab.messages) == 1


async def test_a_destination_is_suspended_by_whatever_spelling(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("suspend", destination="smtp:Example.ORG.:25")
        assert (await core.ask("destinations"))["suspended"] == {"smtp:example.org": None}
        for wrong, code in (
            ("nowhere:example.org", Code.NOT_FOUND),
            ("smtp:a b", Code.INVALID),
            ("example.org", Code.INVALID),
        ):
            with refused(code, "destination"):
                await core.ask("suspend", destination=wrong)


async def test_a_pattern_suspends_all_that_it_takes(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("suspend", destination="smtp:[127.0.0.1]")  # whatever port
        await core.send("a@example.org")
        await core.kill("manager")
        assert (await core.ask("destinations"))["suspended"] == {"smtp:[127.0.0.1]": None}
        assert (await core.size())["messages"] == 1
        assert not lab.messages
        await core.ask("resume", destination="smtp:[127.0.0.1]")
        await core.until_empty()
        assert len(lab.messages) == 1


async def test_a_resume_says_which_wider_suspension_holds_on(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        until = time.time() + 60
        await core.ask("suspend", destination="smtp:.example.org", until=until)
        await core.ask("suspend", destination="smtp:mx.example.org")
        shown = (await core.ask("transports", destination="smtp:mx.example.org"))["scopes"]["smtp:mx.example.org"]
        assert shown["suspended_until"] == {"value": None, "origin": "tuned"}
        answer = await core.ask("resume", destination="smtp:mx.example.org")
        wider = {"value": pytest.approx(until, abs=0.01), "origin": "tuned", "scope": "smtp:.example.org"}
        assert answer["suspended"] == wider
        shown = (await core.ask("transports", destination="smtp:mx.example.org"))["scopes"]["smtp:mx.example.org"]
        assert shown["suspended_until"] == wider
        assert "suspended" not in await core.ask("resume", destination="smtp:.example.org")
        shown = (await core.ask("transports", destination="smtp:mx.example.org"))["scopes"]["smtp:mx.example.org"]
        assert "suspended_until" not in shown


async def test_a_parameter_is_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with Lab(["slow(0.05):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:

        async def limit() -> dict[str, object]:
            transports = (await core.ask("transports"))["scopes"]
            found: dict[str, object] = transports["smtp"]["destination_concurrency_limit"]
            return found

        assert await limit() == {"value": 20, "origin": "default"}
        await core.ask("transport_set", transport="smtp", parameter="destination_concurrency_limit", value=1)
        assert await limit() == {"value": 1, "origin": "tuned"}
        for number in range(5):
            await core.send(f"r{number}@example.org")
        await core.until_empty()
        assert lab.hops[0].counters.connections_peak == 1
        await core.kill("manager")
        assert await limit() == {"value": 1, "origin": "tuned"}
        await core.ask("transport_set", transport="smtp", parameter="destination_concurrency_limit", value=None)
        assert await limit() == {"value": 20, "origin": "default"}


async def test_a_value_set_for_a_time_holds_over_a_restart_and_ends_by_itself(tmp_path: Path) -> None:
    limit = "destination_concurrency_limit"
    async with Lab(["slow(0.05):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        scope = route_to(lab, 0)

        async def in_force() -> dict[str, object]:
            found: dict[str, object] = (await core.ask("transports", destination=scope))["scopes"][scope][limit]
            return found

        assert await in_force() == {"value": 20, "origin": "default", "scope": "smtp"}
        await core.ask("set", scope=scope, parameter=limit, value=2)
        until = time.time() + 6
        answer = await core.ask("set", scope=scope, parameter=limit, value="50%", until=until)
        assert answer == {"scope": scope, "parameter": limit, "value": 1, "before": 2, "until": until}
        for _ in range(2):
            assert await in_force() == {"value": 1, "origin": "tuned", "until": pytest.approx(until, abs=0.01)}
            await core.kill("manager")
        assert (await core.ask("transports"))["scopes"][scope] == {limit: await in_force()}
        for number in range(5):
            await core.send(f"r{number}@example.org")
        await core.until_empty()
        assert lab.hops[0].counters.connections_peak == 1

        async def over() -> bool:
            return await in_force() == {"value": 2, "origin": "tuned"}

        await core.eventually(over, "the end of what was set for a time")
        assert time.time() >= until - 0.1
        await core.ask("set", scope=scope, parameter=limit, value=None)
        assert await in_force() == {"value": 20, "origin": "default", "scope": "smtp"}
        assert scope not in (core.home / "tuned.toml").read_text()


async def test_a_pattern_of_the_configuration_holds_until_a_more_specific_value_is_set(tmp_path: Path) -> None:
    sections: Sections = {
        'transports.smtp.destinations.".Example.org"': {
            "destination_rate_delay": 2,
            "destination_concurrency_positive_feedback": "1/concurrency",
        }
    }
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        shown = (await core.ask("transports"))["scopes"]["smtp:.example.org"]
        assert shown == {
            "destination_concurrency_positive_feedback": {"value": "1/concurrency", "origin": "configuration"},
            "destination_rate_delay": {"value": 2, "origin": "configuration"},
        }
        setting = {"scope": "smtp:MX.example.org:25", "parameter": "destination_concurrency_positive_feedback"}
        assert (await core.ask("set", **setting, value="0.5/sqrt_concurrency"))["before"] == "1/concurrency"
        await core.ask("set", scope="smtp", parameter="destination_rate_delay", value=9)
        await core.kill("manager")
        shown = (await core.ask("transports", destination="smtp:mx.example.org"))["scopes"]["smtp:mx.example.org"]
        assert shown["destination_concurrency_positive_feedback"] == {
            "value": "0.5/sqrt_concurrency",
            "origin": "tuned",
        }
        assert shown["destination_rate_delay"] == {"value": 2, "origin": "configuration", "scope": "smtp:.example.org"}
        assert shown["destination_recipient_limit"] == {"value": 50, "origin": "default", "scope": "smtp"}


async def test_values_that_only_fit_together_are_all_there_after_a_restart(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        # Alone, each of them contradicts what is configured for the other.
        values = {"minimal_backoff_time": 0.2, "maximal_backoff_time": 0.3}
        for name, value in values.items():
            await core.ask("set", scope="", parameter=name, value=value)
        await core.kill("manager")
        shown = (await core.ask("transports"))["scopes"][""]
        assert {name: shown[name]["value"] for name in values} == values


async def test_wrong_parameters_and_values_are_refused_and_nothing_ends(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        manager = core.processes()["manager"]
        for code, wrong, arguments in (
            (Code.INVALID, "parameter", {"transport": "smtp", "parameter": "nonsense", "value": 1}),
            (Code.INVALID, "value", {"transport": "smtp", "parameter": "process_limit", "value": -1}),
            (Code.INVALID, "value", {"transport": "smtp", "parameter": "process_limit", "value": "many"}),
            (Code.NOT_FOUND, "transport", {"transport": "nowhere", "parameter": "process_limit", "value": 1}),
            (
                Code.INVALID,
                "until",
                {"transport": "smtp", "parameter": "process_limit", "value": 1, "until": time.time() - 1},
            ),
            (Code.INVALID, "value", {"transport": "smtp", "parameter": FEEDBACK, "value": "2"}),
            (Code.INVALID, "value", {"transport": "smtp", "parameter": FEEDBACK, "value": "50%"}),
        ):
            with refused(code, wrong):
                await core.ask("transport_set", **arguments)
        for parameter, more, wrong in (
            ("destination_concurrency_limit", {"value": None, "for_s": 5}, "value"),
            ("destination_concurrency_limit", {"value": None, "until": time.time() + 5}, "value"),
            ("suspended_until", {"value": 5}, "parameter"),
            ("suspended_until", {"value": None}, "parameter"),
            ("destination_rate_delay", {"value": "50%"}, "value"),
        ):
            with refused(Code.INVALID, wrong):
                await core.ask("set", scope="smtp:example.org", parameter=parameter, **more)
        with refused(Code.NOT_FOUND, "scope"):
            await core.ask("set", scope="nowhere:example.org", parameter="destination_concurrency_limit", value=1)
        with refused(Code.INVALID, "scope"):
            await core.ask("set", scope="smtp:*", parameter="destination_concurrency_limit", value=1)
        assert core.processes()["manager"] == manager
        assert not (core.home / "tuned.toml").exists()


async def test_a_damaged_file_stops_no_mail_and_is_set_aside(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("suspend", destination=route_to(lab, 0))
        core.stop()
        tuned = core.home / "tuned.toml"
        tuned.write_text('["smtp:[127.0.0.1')
        await core.control.close()
        await core.start()
        assert str(tuned) in (await core.ask("state"))["tuned_damage"]
        assert (core.home / "tuned.toml.damaged.1").read_text() == '["smtp:[127.0.0.1'
        await core.send("a@example.org")
        await core.until_empty()
        assert len(lab.messages) == 1


async def test_a_message_is_handed_in_and_delivered(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        queue_id = await core.inject("a@example.org", "b@example.org")
        await core.until_empty()
        await core.until_removed(queue_id)
        assert recipients_of(lab.messages) == ["a@example.org", "b@example.org"]


@pytest.mark.parametrize(
    "killed", [pytest.param(False, id="running", marks=pytest.mark.long), pytest.param(True, id="killed")]
)
async def test_scheduled_mail_goes_down_the_lanes_and_not_before_its_time(tmp_path: Path, killed: bool) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        not_before = time.time() + 7
        queue_id = await core.inject("a@example.org", not_before=not_before)
        if killed:
            await core.kill("manager")
        lanes: list[str] = []
        while not lab.messages:
            item = await core.item(queue_id)
            if item is not None and item["lane"] not in lanes:
                lanes.append(item["lane"])
            if killed and len(lanes) == 2:
                await core.again()
                killed = False
            await asyncio.sleep(LOOK_EVERY_S)
        assert lab.messages[0].at >= not_before - 1.1
        assert lanes[0] == "retry.4"
        assert "retry.2" in lanes or "retry.1" in lanes
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]


async def test_scheduled_mail_stays_scheduled_when_held_and_released_and_goes_at_once_when_told_so(
    tmp_path: Path,
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        queue_id = await core.inject("a@example.org", not_before=time.time() + 600)
        await core.order("hold", queue_id)
        await core.order("release", queue_id)
        await core.until_in(queue_id, "retry.4")
        assert not lab.messages
        await core.order("retry", queue_id)
        await core.until_empty()
        assert len(lab.messages) == 1


async def test_mail_for_a_suspended_destination_stops_nobody_elses(tmp_path: Path) -> None:
    sections: Sections = {
        "scheduler": {"message_active_limit": 10, "minimal_backoff_time": 1, "maximal_backoff_time": 2}
    }
    async with (
        Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, sections) as core,
    ):
        await core.ask("suspend", destination=route_to(lab, 0))
        waiting = [f"r{number}@example.org" for number in range(15)]
        for recipient in waiting:
            await core.send(recipient)
        await core.send("a@sender.example")
        await lab.wait_for(1)
        assert recipients_of(lab.messages) == ["a@sender.example"]

        async def fifteen() -> bool:
            return bool((await core.size())["messages"] == 15)

        await core.eventually(fifteen, "the verdict of the one that arrived")
        await core.ask("resume", destination=route_to(lab, 0))
        await core.until_empty()
        assert recipients_of(lab.hops[0].messages) == sorted(waiting)


def ended(core: RunningCore) -> list[tuple[object, ...]]:
    if not (core.home / "log" / "mail.jsonl").exists():  # nothing has happened yet
        return []
    return [
        (line["scope"], line["parameter"], line["value"], line["holds"])
        for line in core.log()
        if line["event"] == "tuned_ended"
    ]


async def test_what_ends_by_itself_is_told_once(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        until = time.time() + 1.5
        await core.ask("set", scope="smtp", parameter="process_limit", value=40)
        await core.ask("set", scope="smtp", parameter="process_limit", value=10, until=until)
        await core.ask("set", scope="bulk", parameter="process_limit", value=7, until=until)
        await core.ask("set", scope="bulk", parameter="process_limit", value=None)  # taken back: it does not end
        await core.ask("suspend", destination="smtp:example.net", until=until)

        async def both() -> bool:
            return len(ended(core)) == 2

        await core.eventually(both, "both ends in the log")
        told = {parameter: (scope, value, holds) for scope, parameter, value, holds in ended(core)}
        assert told["process_limit"] == ("smtp", 10, 40)
        assert told["suspended_until"] == ("smtp:example.net", pytest.approx(until, abs=0.01), None)
        await core.kill("manager")
        assert len(ended(core)) == 2  # it is out of the file


async def test_what_ended_while_no_manager_was_there_is_told_at_the_start(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        until = time.time() + 2
        await core.ask("suspend", destination="smtp:example.net", until=until)
        core.stop()
        while time.time() <= until:  # noqa: ASYNC110 - the clock is what is waited for
            await asyncio.sleep(0.05)
        await core.control.close()
        await core.start()

        async def told() -> bool:
            return [each[:2] for each in ended(core)] == [("smtp:example.net", "suspended_until")]

        await core.eventually(told, "its end in the log")


async def test_a_value_that_nobody_set_is_from_default(tmp_path: Path) -> None:
    """Also of two values that are equal: what the file says stays when a later release has another default."""
    sections: Sections = {"transports.smtp": {"destination_concurrency_limit": 20}, "scheduler": {}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        scopes = (await core.ask("transports"))["scopes"]
        origins = {name: scopes["smtp"][name]["origin"] for name in ("destination_concurrency_limit", "process_limit")}
        assert origins == {"destination_concurrency_limit": "configuration", "process_limit": "default"}
        assert scopes["relay"]["destination_concurrency_limit"] == {"value": 20, "origin": "default"}
        assert scopes[""]["minimal_backoff_time"]["origin"] == "configuration"  # these tests make it short
        assert scopes[""]["message_active_limit"]["origin"] == "default"
