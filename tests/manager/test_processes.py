"""Processes that die or are away, and what then becomes of the mail in their hands."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.running.running_core import Sections, recipients_of, route_to, running


async def test_a_killed_deliverers_entries_are_due_at_once_and_no_failure_of_the_site(tmp_path: Path) -> None:
    sections: Sections = {
        "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
        "queue": {"retry_ladder_s": [60]},
    }
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for number in range(3):
            await core.send(f"r{number}@example.org")
        await core.until_in_flight(3)
        await lab.hops[0].set_behaviour("accept")
        await core.kill("deliverer.0")
        await core.until_empty()  # a minute of backoff would be too long for this
        assert recipients_of(lab.messages) == [f"r{number}@example.org" for number in range(3)]
        snapshot = (await core.ask("state"))["scheduler"]
        assert {destination["site_failures"] for destination in snapshot["destinations"]} <= {0}


async def test_two_deliverers_share_the_work(tmp_path: Path) -> None:
    sections: Sections = {"deliverer": {"processes": 2, "concurrency": 1}}
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for number in range(4):
            await core.send(f"r{number}@example.org")
        await core.until_in_flight(2)
        links = (await core.ask("state"))["deliverers"]
        assert [link["in_flight"] for link in links] == [1, 1]
        await lab.hops[0].set_behaviour("accept")
        await core.kill("deliverer.0")
        await core.kill("deliverer.1")
        await core.until_empty()
        assert recipients_of(lab.messages) == [f"r{number}@example.org" for number in range(4)]


async def test_a_manager_killed_with_deliveries_in_flight_delivers_them(tmp_path: Path) -> None:
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        for number in range(5):
            await core.send(f"r{number}@example.org", f"s{number}@example.org")
        await core.until_in_flight(5)
        await core.kill("manager")

        async def counted() -> bool:
            size = await core.size()
            return (size["messages"], size["recipients"]) == (5, 10)

        await core.eventually(counted, "the receiver's word on what the last checkpoint did not know")
        await lab.hops[0].set_behaviour("accept")
        await core.kill("deliverer.0")  # what hangs at the silent hop
        await core.until_empty()
        assert recipients_of(lab.messages) == sorted(
            f"{word}{number}@example.org" for word in "rs" for number in range(5)
        )


async def test_mail_is_accepted_while_the_manager_is_away(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        manager = core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            for number in range(3):
                await core.send(f"r{number}@example.org", heard=False)
            assert not lab.messages
        finally:
            os.kill(manager, signal.SIGKILL)
        await core.eventually(core._answers, "a manager")
        await lab.wait_for(3)
        await core.until_empty()
        assert len(lab.messages) == 3


async def test_the_lane_of_a_receiver_that_is_no_more_is_drained(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {"receiver": {"processes": 2}}) as core:
        await core.ask("suspend", destination=route_to(lab, 0))
        sent = 0
        while not list((core.home / "queue" / "incoming.1").glob("*.seg")):  # the kernel chooses who accepts
            await core.send(f"r{sent}@example.org")
            sent += 1
        manager = core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)  # what comes now has no START yet
        for _ in range(6):
            await core.send(f"r{sent}@example.org", heard=False)
            sent += 1
        core.stop()
        config = core.config.read_text()
        core.config.write_text(re.sub(r"processes = 2", "processes = 1", config))
        await core.control.close()
        await core.start()

        async def counted() -> bool:
            return bool((await core.size())["messages"] == sent)

        await core.eventually(counted, "the receiver's word, and the look into the lane without one")
        await core.ask("resume", destination=route_to(lab, 0))
        await core.until_empty()
        assert recipients_of(lab.messages) == sorted(f"r{number}@example.org" for number in range(sent))


async def test_a_window_is_never_passed(tmp_path: Path) -> None:
    sections: Sections = {"transports.smtp": {"destination_concurrency_limit": 2}}
    async with Lab(["slow(0.05):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for number in range(20):
            await core.send(f"r{number}@example.org")
        await core.until_empty()
        assert len(recipients_of(lab.messages)) == 20
        assert lab.hops[0].counters.connections_peak == 2


async def test_a_damaged_envelope_is_reported_and_stays_and_the_others_are_delivered(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        manager = core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)
        ids = [await core.send(f"r{number}@example.org", heard=False) for number in range(5)]
        core.stop()
        (segment,) = (core.home / "queue" / "incoming.0").glob("*.seg")
        data = segment.read_bytes()
        at = data.index(ids[2].encode())
        segment.write_bytes(data[:at] + b"?" + data[at + 1 :])
        await core.control.close()
        await core.start()
        await lab.wait_for(4)
        assert recipients_of(lab.messages) == [f"r{number}@example.org" for number in (0, 1, 3, 4)]

        async def reported() -> bool:
            return any(line["event"] == "record_set_aside" for line in core.log())

        await core.eventually(reported, "a report of the damage")
        await core.send("later@example.org")
        await lab.wait_for(5)
        await core.again()
        assert segment.read_bytes().count(b"?" + ids[2][1:].encode()) == 1


async def test_everything_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    async with Lab(["greylist(0.5):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        sent = 0
        for name in ("manager", "deliverer.0", "receiver.0", "manager", "control", "manager"):
            for _ in range(5):
                with contextlib.suppress(OSError, ConnectionError):
                    await core.send(f"r{sent}@example.org")
                sent += 1
            await core.kill(name)
        await core.until_empty()
        got = recipients_of(lab.messages)
        assert set(got) == {f"r{number}@example.org" for number in range(sent)}
