"""What would happen with other parameters: a fake manager's queue, real lanes and a real journal, and a real child."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.scheduler_parameters import parameters_of
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError, Refused
from mailcore.control.protocol.tuning import ServiceTimesPart, SimulateArguments
from mailcore.control.whatif import WhatIf, WhatIfRefused
from mailcore.envelope import Status, Verdict
from mailcore.faults import Code
from mailcore.log.record import RecordType
from mailcore.lookup.answers import DestinationTimes, ServiceTimes
from mailcore.queue.records import Delivery, encode
from mailcore.simulator.distribution import Distribution
from mailcore.simulator.measured import Tried, limit_of, modelled, overhead_of
from tests.answers import sample
from tests.control.running_control import RunningControl
from tests.eventually import eventually
from tests.faults import refused
from tests.lookup.sample_messages import deferred, envelope

EXAMPLE, OTHER = "smtp:example.org", "smtp:other.example"
LIMIT = "destination_concurrency_limit"


@pytest.fixture
async def queue(running: RunningControl) -> RunningControl:
    """A hundred new messages for one destination, twenty deferred ones for another, as the manager would tell it."""
    running.write("incoming.0", *(envelope(f"u{number}@example.org") for number in range(100)))
    running.write("retry.300", *(deferred(f"u{number}@other.example") for number in range(20)))
    answers = running.manager.answers
    answers["size"] = lambda _: {
        "messages": 120,
        "recipients": 120,
        "lanes": {"incoming.0": {"messages": 100, "recipients": 100}, "retry.300": {"messages": 20, "recipients": 20}},
        "destinations": {EXAMPLE: 100, OTHER: 20},
    }
    answers["destinations"] = lambda _: {"destinations": {}}
    answers["state"] = lambda _: {"uptime_s": 100.0, "counters": {"accepted": 500, "recipients_accepted": 1_000}}
    return running


def delivered(
    running: RunningControl,
    to: str,
    seconds: float,
    times: int = 50,
    *,
    status: Status = Status.DELIVERED,
    relay: str = "",
    size_bytes: int = 0,
) -> None:
    """In the journal, just now."""
    journal = running.lane("journal")
    now = running.server.view.browser.clock()
    for number in range(times):
        verdicts = (Verdict(0, status, "2.0.0", "250 OK"),)
        at = now - (times - number) * seconds
        server = relay or f"{to.partition(':')[2]}[::1]:25"
        body = Delivery(
            "1K0RDGV4BE900", 0, verdicts, at, server, "", (0.0, 0.0, 0.0, seconds), to, size_bytes=size_bytes
        )
        journal.writer.append(RecordType.DELIVERY, encode(body))
    journal.writer.sync()


async def simulated(control: AsyncControlClient, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await control.call("simulate", arguments)
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [each["code"] for each in answer["unknown"]]


def set_to(value: object, scope: str = "smtp", parameter: str = LIMIT) -> dict[str, Any]:
    return {"scope": scope, "parameter": parameter, "value": value}


# -- the answer


async def test_before_and_after_are_told_with_progress_and_assumptions(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    parts = [part async for part in control.parts("simulate", {"changes": [set_to(1)], "duration_s": 3_600.0})]
    *progress, last = parts
    assert {part["stage"] for part in progress} >= {"measuring"}
    assert all(0 <= part["progress"] <= 1 for part in progress)
    assert last["done"] is True
    assert codes(last) == ["not_measured"]
    assert last["unknown"][0]["names"] == [EXAMPLE, OTHER]
    for result in (last["before"], last["after"]):
        assert result["delivered"] == 120
        assert result["messages"] == 120
        assert result["truncated"] is False
        series = result["series"]
        assert len(series["t"]) == len(series["backlog"]) == len(series["delivered"]) == len(series["deferred"]) <= 400
        assert sum(series["delivered"]) == 120
        assert series["window"].keys() == series["busy"].keys() == {EXAMPLE, OTHER}
        assert result["delay"]["small"]["p50"] <= result["delay"]["small"]["p99"]
    # One at a time, each 0.2 s: the default of what was not measured.
    series = last["after"]["series"]
    assert next(at for at, left in zip(series["t"], series["backlog"], strict=True) if not left) >= 20
    assert last["after"]["drain_s"] > last["before"]["drain_s"]


async def test_next_hops_are_as_measured(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 2.0)
    delivered(queue, OTHER, 2.0)
    answer = await simulated(control, changes=[set_to(1)], duration_s=3_600.0)
    assert answer["after"]["drain_s"] >= 200
    assert any(sentence.startswith("2 next hops are as measured") for sentence in answer["assumptions"])


async def test_next_hops_may_be_said_to_be_otherwise(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 0.1)
    answer = await simulated(control, changes=[set_to(1)], hops={"smtp:EXAMPLE.org": {"transaction_s": 5}})
    assert answer["after"]["drain_s"] >= 500
    assert any(f"otherwise: {EXAMPLE}" in sentence for sentence in answer["assumptions"])


async def test_the_same_seed_gives_the_same_answer(queue: RunningControl, control: AsyncControlClient) -> None:
    asked = {"hops": {"*": {"transaction_s": "exponential(0.5)"}}, "changes": [set_to("50%")]}
    first, again, other = [(await simulated(control, **asked, seed=seed))["after"] for seed in (1, 1, 2)]
    assert first["series"] == again["series"]
    assert first["drain_s"] == again["drain_s"]
    assert first["series"] != other["series"]


async def test_without_a_backlog_there_is_what_arrives(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 0.1)
    answer = await simulated(control, backlog="none", arrivals=True, duration_s=100.0)
    assert 800 < answer["after"]["delivered"] < 1_200  # ten a second, two of each message
    assert answer["after"]["messages"] == 0
    assert answer["after"]["drain_s"] is None


async def test_what_is_set_live_holds_before_and_after(queue: RunningControl, control: AsyncControlClient) -> None:
    (queue.settings.home / "tuned.toml").write_text(f"[smtp]\n{LIMIT} = 1\n")
    answer = await simulated(control, changes=[set_to(None)])
    assert answer["before"]["drain_s"] > answer["after"]["drain_s"]
    queue.manager.answers["destinations"] = lambda _: {"destinations": {EXAMPLE: {"dead_s": 400.0}}}
    answer = await simulated(control)
    assert answer["before"]["drain_s"] > 400
    assert any(sentence.startswith("Dead now") for sentence in answer["assumptions"])


async def test_held_mail_goes_nowhere(queue: RunningControl, control: AsyncControlClient) -> None:
    queue.write("hold", *(envelope(f"h{number}@example.org") for number in range(30)))
    size = queue.manager.answers["size"]({})
    lanes = size["lanes"] | {"hold": {"messages": 30, "recipients": 30}}
    queue.manager.answers["size"] = lambda _: size | {"lanes": lanes, "destinations": {EXAMPLE: 130, OTHER: 20}}
    answer = await simulated(control)
    assert answer["before"]["delivered"] == answer["before"]["messages"] == 120


async def test_files_of_events_that_can_not_be_read_are_counted_and_named(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    assert (await simulated(control))["unread_files"] == 0
    today = queue.settings.events_directory / f"dt={datetime.now(UTC):%Y-%m-%d}"
    today.mkdir(parents=True)
    for number in range(5):
        (today / f"journal.{number}.parquet").write_bytes(b"PAR1 no more")
    answer = await simulated(control)
    assert answer["unread_files"] == 5
    told = answer["assumptions"][0]
    assert told.startswith("Measurements of next hops are incomplete: not all events could be read: dt=")
    assert "journal.4.parquet" in told
    assert "and 2 more" in told


async def test_mail_without_a_name_goes_where_the_sample_goes(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    size = queue.manager.answers["size"]({})
    queue.manager.answers["size"] = lambda _: size | {"destinations": {OTHER: 20, "": 100}}
    answer = await simulated(control, hops={EXAMPLE: {"bounced_share": 1}})
    assert (answer["before"]["delivered"], answer["before"]["bounced"]) == (20, 100)
    assert any(sentence.startswith("Where 100 of 120 recipients go") for sentence in answer["assumptions"])


async def test_a_backlog_that_keeps_growing_includes_mail_that_is_not_due_yet(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    late = queue.server.view.browser.clock() + 1_000
    queue.write("retry.600", *(deferred(f"u{number}@other.example", due_at=late) for number in range(50)))
    size = queue.manager.answers["size"]({})
    lanes = size["lanes"] | {"retry.600": {"messages": 50, "recipients": 50}}
    queue.manager.answers["size"] = lambda _: size | {"lanes": lanes, "destinations": {EXAMPLE: 100, OTHER: 70}}
    answer = await simulated(control, arrivals=True, duration_s=100.0)
    before = answer["before"]
    assert before["recipients"] == 170
    assert before["series"]["backlog"][-1] >= 50
    assert 900 < before["delivered"] < 1_400
    assert before["delivered"] + before["waiting"] > 1_000


async def test_the_series_are_of_what_is_changed(queue: RunningControl, control: AsyncControlClient) -> None:
    """Five destinations have a series, those with the most mail; the changed one is always among them."""
    more = {f"smtp:d{number}.example": 1_000 for number in range(6)}
    size = queue.manager.answers["size"]({})
    lanes = {"incoming.0": {"messages": 6_100, "recipients": 6_100}, "retry.300": {"messages": 20, "recipients": 20}}
    queue.manager.answers["size"] = lambda _: size | {"lanes": lanes, "destinations": {EXAMPLE: 100, OTHER: 20} | more}
    answer = await simulated(control, duration_s=10.0)
    assert OTHER not in answer["after"]["series"]["window"]
    answer = await simulated(control, changes=[set_to(3, scope=OTHER)], duration_s=10.0)
    for result in (answer["before"], answer["after"]):
        assert OTHER in result["series"]["window"]
        assert len(result["series"]["window"]) == 5
        (busy,) = result["series"]["transports"].values()
        assert len(busy) == len(result["series"]["t"])
        assert max(busy) > max(result["series"]["busy"][OTHER])


# -- what is not known


async def test_nothing_to_compare_is_not_compared(running: RunningControl, control: AsyncControlClient) -> None:
    empty = {"messages": 0, "recipients": 0, "lanes": {}, "destinations": {}}
    running.manager.answers |= {"size": lambda _: empty, "destinations": lambda _: {"destinations": {}}}
    running.manager.answers["state"] = lambda _: {"uptime_s": 100.0, "counters": {"recipients_accepted": 0}}
    for arrivals in (False, True):
        answer = await simulated(control, changes=[set_to(1)], arrivals=arrivals)
        assert codes(answer) == ["no_mail"]


async def test_a_change_that_no_mail_is_for_is_named(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 0.2)
    delivered(queue, OTHER, 0.2)
    assert codes(await simulated(control, changes=[set_to(20)])) == []
    answer = await simulated(control, changes=[set_to(20), set_to(1, scope="smtp:nowhere.example")])
    assert codes(answer) == ["change_without_mail"]
    assert answer["unknown"][0]["names"] == ["smtp:nowhere.example"]


async def test_a_rate_measured_for_seconds_is_hardly_known(queue: RunningControl, control: AsyncControlClient) -> None:
    state = queue.manager.answers["state"]({})
    queue.manager.answers["state"] = lambda _: state | {"uptime_s": 5.0}
    assert "arrivals" in codes(await simulated(control, arrivals=True, duration_s=10.0))
    queue.manager.answers["state"] = lambda _: state | {"counters": {}}
    assert "arrivals" in codes(await simulated(control, arrivals=True, duration_s=10.0))
    assert "arrivals" not in codes(await simulated(control, duration_s=10.0))


async def test_limits_of_providers_are_not_known(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 2.0)
    delivered(queue, OTHER, 0.1)
    faster = await simulated(control, changes=[set_to(40)])
    assert codes(faster) == ["provider_limits"]
    assert codes(await simulated(control, changes=[set_to(1)])) == []  # slower: nothing new is reached
    delivered(queue, EXAMPLE, 0.1, status=Status.DEFERRED)
    slower = await simulated(control, changes=[set_to(1)])
    assert [each["names"] for each in slower["unknown"] if each["code"] == "provider_limits"] == [[EXAMPLE]]


async def test_limits_that_destinations_share_are_not_known(queue: RunningControl, control: AsyncControlClient) -> None:
    delivered(queue, EXAMPLE, 0.2, relay="mx.example[192.0.2.1]:25")
    delivered(queue, OTHER, 0.2, relay="mx.example[192.0.2.1]:25")
    answer = await simulated(control)
    assert [(each["code"], each["names"]) for each in answer["unknown"]] == [("shared_limits", [EXAMPLE, OTHER])]


async def test_large_messages_in_the_queue_or_delivered_lately_are_named(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    delivered(queue, EXAMPLE, 0.2)
    delivered(queue, OTHER, 0.2)
    assert codes(await simulated(control)) == []
    queue.write("incoming.0", envelope("big@example.org", size_bytes=20 << 20))
    answer = await simulated(control)
    assert codes(answer) == ["sizes"]
    assert "1 of 121 sampled messages" in answer["unknown"][0]["message"]
    delivered(queue, OTHER, 0.2, times=3, size_bytes=2 << 20)
    assert "and 3 measured deliveries" in (await simulated(control))["unknown"][0]["message"]


# -- what is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_to(0), rf"{LIMIT} must be between 1 and 10000 deliveries \(got 0\)"),
        (set_to(5, scope="nowhere:x"), r"scope: 'nowhere:x': there is no transport 'nowhere'; there are"),
        (set_to(5, parameter="colour"), r"colour is not a parameter of scope \"smtp\""),
        (set_to(5, scope=EXAMPLE, parameter="suspended_until"), r"use destination suspend, destination resume"),
    ],
)
async def test_a_change_is_refused_in_the_words_of_set(
    queue: RunningControl, control: AsyncControlClient, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        await simulated(control, changes=[change])


async def test_each_wrong_change_is_named_and_nothing_is_simulated(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    changes = [
        set_to(5), set_to(0), set_to(5, scope="nowhere:x"), set_to(5, parameter="colour"),
        set_to(9_000.0, scope="", parameter="minimal_backoff_time"),
        set_to(9_000.0, scope="", parameter="maximal_backoff_time"),
        set_to(8_000.0, scope="", parameter="minimal_backoff_time"),
        set_to("50%"), set_to(None),
    ]  # fmt: skip
    faults = (await control.call("check_changes", {"changes": changes}))["faults"]
    assert [fault and (fault["code"], fault["argument"]) for fault in faults] == [
        None, ("invalid", "changes[1].value"), ("not_found", "changes[2].scope"), ("invalid", "changes[3].parameter"),
        ("invalid", "changes[4].value"), None, None, None, None,
    ]  # fmt: skip
    assert queue.manager.asked("size") == queue.manager.asked("set") == []
    with refused(Code.INVALID, "changes[1].value"):
        await simulated(control, changes=changes[:2])


async def test_values_are_checked_over_those_set_live_and_without_the_manager(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    (queue.settings.home / "tuned.toml").write_text('[""]\nmaximal_backoff_time = 20000.0\n')
    await queue.lose_the_manager()
    answer = await control.call(
        "check_changes", {"changes": [set_to(9_000.0, scope="", parameter="minimal_backoff_time")]}
    )
    assert answer == {"faults": [None]}


async def test_a_next_hop_that_makes_no_sense_is_refused(queue: RunningControl, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="hops: smtp: 'speed' is not a key of a next hop; the keys are transaction_s"):
        await simulated(control, hops={"smtp": {"speed": 1}})
    with pytest.raises(
        Refused, match=r"hops: smtp: connect_s must be between 0 and 3600 seconds, which is 1 hour \(got -1\)"
    ):
        await simulated(control, hops={"smtp": {"connect_s": -1}})


async def test_without_the_manager_nothing_is_simulated(queue: RunningControl, control: AsyncControlClient) -> None:
    await queue.lose_the_manager()
    with pytest.raises(Refused, match="the manager is not running"):
        await simulated(control)


# -- bounds


def children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found.update(map(int, path.read_text().split()))
    return {pid for pid in found if b"mailcore.simulator.child" in _command(pid)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it ended just now
        return b""


LONG: dict[str, Any] = {"backlog": "none", "arrivals": True, "duration_s": 2_000_000.0}  # ten a second


async def test_so_many_at_once_and_no_more_and_who_goes_takes_his_with_him(
    queue: RunningControl, control: AsyncControlClient
) -> None:
    delivered(queue, EXAMPLE, 0.1)
    askers = [queue.client() for _ in range(2)]
    asked = [asyncio.create_task(asker.call("simulate", LONG)) for asker in askers]
    await eventually(lambda: len(children()) == 2)
    with pytest.raises(Refused, match=r"2 simulations are running already \(control.simulations_max\)"):
        await simulated(control)
    pids = children()
    for task, asker in zip(asked, askers, strict=True):
        task.cancel()
        with pytest.raises((asyncio.CancelledError, ControlError)):
            await task
        await asker.close()
    await eventually(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)
    )  # nor as something to be waited for

    async def done() -> bool:
        """The place is free when the server has noticed the end of the process, which may be an instant later."""
        try:
            return bool((await simulated(control))["done"])
        except Refused as error:
            if error.fault.code is not Code.BUSY:
                raise
            return False

    await eventually(done)


async def test_it_has_less_right_to_the_processor_than_mail(queue: RunningControl) -> None:
    delivered(queue, EXAMPLE, 0.1)
    async with queue.client() as asker:
        asked = asyncio.create_task(asker.call("simulate", LONG))
        await eventually(children)
        (child,) = children()
        await eventually(lambda: os.getpriority(os.PRIO_PROCESS, child) == 10)
        asked.cancel()
        with pytest.raises((asyncio.CancelledError, ControlError)):
            await asked
    await eventually(lambda: not children())


async def test_what_takes_too_long_is_ended(queue: RunningControl) -> None:
    settings = queue.settings
    short = dataclasses.replace(settings, control=dataclasses.replace(settings.control, simulation_timeout_s=0.05))

    async def times_since(since_s: float, records_max: int) -> AsyncIterator[ServiceTimesPart]:
        yield ServiceTimesPart(done=True, times=ServiceTimes(destinations={}, since=0.0, examined=0))

    whatif = WhatIf(queue.server.view, short, parameters_of(short), times_since)  # type: ignore[arg-type]
    with pytest.raises(WhatIfRefused, match=r"not done within 0.05 s \(control.simulation_timeout_s\)"):
        async for _ in whatif.simulate(None, SimulateArguments(**LONG)):  # type: ignore[arg-type]
            pass
    await eventually(lambda: not children())


# -- the model


def row(**values: Any) -> DestinationTimes:
    return sample(DestinationTimes, {
        "deliveries": 100, "recipients": 100, "connect_s": [], "transmit_s": [0.1, 0.2], "new_connections": 0,
        "site_failures": 0, "deferred": 0, "bounced": 0, "replies": [],
    } | values)  # fmt: skip


def steady(slots: int, seconds: float, gap_s: float, times: int = 40) -> list[Tried]:
    """Each slot's deliveries one after the other, the slots a little after each other."""
    tried = [
        Tried(1_000 + slot * 0.013 + turn * (seconds + gap_s) + seconds, 0.0, seconds, 1, False, "")
        for slot in range(slots)
        for turn in range(times)
    ]
    return sorted(tried)


def test_our_own_part_is_what_lies_between_two_deliveries() -> None:
    measured = overhead_of([steady(3, 0.1, 0.004)])
    assert measured == pytest.approx(0.004, abs=0.001)
    assert overhead_of([steady(1, 0.1, 5.0)]) is None  # nothing was waiting
    assert overhead_of([]) is None


def test_our_own_part_is_added_to_each_delivery() -> None:
    values, said = modelled(row(transmit_s=[0.1, 0.1]), [], 0.005)
    assert Distribution.parse(values["transaction_s"]).mean == pytest.approx(0.105)
    assert said == ""


def test_what_one_recipient_takes_comes_out_of_deliveries_of_different_sizes() -> None:
    tried = [Tried(1_000 + n, 0.0, 0.2 + 0.01 * (n % 50), n % 50, False, "") for n in range(1, 200) if n % 50]
    values, said = modelled(row(recipients=2_500), tried, 0.0)
    assert Distribution.parse(values["recipient_s"]).mean == pytest.approx(0.01, rel=0.01)
    assert Distribution.parse(values["transaction_s"]).mean == pytest.approx(0.2, rel=0.01)
    assert said == ""
    _, said = modelled(row(recipients=2_500), [], 0.0)
    assert "the time for one recipient was not measured" in said


def test_a_limit_shows_in_what_was_open_when_connections_were_refused() -> None:
    tried = steady(5, 0.1, 0.002)
    refused = [Tried(each.ended_at - 0.05, 0.001, 0.0, 1, True, "421 4.7.0 too many") for each in tried[20:40]]
    assert limit_of([*tried, *refused]) == 5
    values, said = modelled(row(site_failures=20), [*tried, *refused], 0.0)
    assert values["connections_max"] == 5
    assert "421" in said
    assert limit_of(tried) is None


def test_shares_are_of_those_that_came_to_a_transaction() -> None:
    values, _ = modelled(row(deferred=10, bounced=5), [], 0.0)
    assert (values["deferred_share"], values["bounced_share"]) == (0.1, 0.05)
