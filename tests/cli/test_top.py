"""The screen of ``waypost top``: it fits, it says what it does not know, and it gives the terminal back."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import time
from dataclasses import replace

import msgspec
import pytest

from mailcore.cli.top import ENTER, LEAVE, Sample, frame, rates_of
from mailcore.control.protocol.state import Child, Processes
from mailcore.manager_answers import Destinations, ShardRow, ShardSize, Size, State
from tests.answers import complete
from tests.cli.running_control import Waypost
from tests.faults import OTHER_WORDS

PROCESSES = Processes(
    processes={"manager": 1}, manager=True,
    children={"manager": Child(pid=1, started_at=1.0, restarts=3), "control": Child(pid=None, started_at=1.0, restarts=0)},
)  # fmt: skip


def sample(at: float, delivered: int, *, since: float = 1.0, destinations: int = 40) -> Sample:
    name = "smtp:[2001:db8::1]-a-very-long-name-of-a-destination-{}.example.org"
    each = {
        "window": 5, "limit": 20, "recipient_limit": 50, "busy": 5, "queued": 1_000_000, "messages": 3, "success": 0.0,
        "failure": 0.0, "fail_cohorts": 0.0, "dead_until": 9.0, "dead_s": 1.0, "reason": "x\x1b[2J", "deaths": 1,
        "suspended": False, "suspended_until": None, "suspended_s": None, "rest_s": None, "entries": 1,
        "recipients_done": 1, "given_back": 0, "site_failures": 0, "success_share": 0.1,
    }  # fmt: skip
    found = msgspec.convert(
        {
            "destinations": {name.format(number): each for number in range(destinations)},
            "without_mail": {}, "queued": {}, "suspended": {}, "states": {},
        },
        Destinations,
    )  # fmt: skip
    state = msgspec.convert(complete(State, {}), State)
    state.totals = {"recipients_delivered": delivered}
    state.counted_since = since
    lanes = {"incoming.0": {"messages": 1, "recipients": 1}, "retry.60": {"messages": 2, "recipients": 2}}
    size = msgspec.convert({"messages": 3, "recipients": 3, "lanes": lanes, "destinations": {}}, Size)
    return Sample(at, PROCESSES, state, size, found)


@pytest.mark.parametrize(("columns", "rows"), [(80, 23), (40, 10), (200, 60), (80, 3)])
def test_a_frame_fits_its_screen_and_is_harmless(columns: int, rows: int) -> None:
    lines = frame(sample(10.0, 30), sample(8.0, 10), columns, rows)
    assert len(lines) <= rows
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in "".join(lines)


def test_a_frame_says_what_an_operator_looks_for() -> None:
    text = "\n".join(frame(sample(10.0, 30), sample(8.0, 10), 80, 23))
    assert "1 of 2 processes run, not control, 3 restarts" in text
    assert "3 messages, 3 recipients, 1 new, 2 deferred" in text
    assert "10 delivered" in text
    assert "BUSIEST" in text
    assert "WORST" in text


def test_one_restart_is_one_restart() -> None:
    once = replace(sample(10.0, 30), processes=Processes(
        processes={}, manager=True, children={"manager": Child(pid=1, started_at=1.0, restarts=1)}
    ))  # fmt: skip
    assert ", 1 restart, manager up" in frame(once, sample(8.0, 10), 100, 23)[0]


def test_rates_are_not_invented() -> None:
    assert rates_of(sample(10.0, 30), sample(8.0, 10))["recipients_delivered"] == 10.0
    assert rates_of(sample(10.0, 30), sample(8.0, 10, since=2.0))["recipients_delivered"] is None
    assert rates_of(sample(10.0, 30), Sample(8.0))["recipients_delivered"] is None
    away = frame(Sample(10.0, PROCESSES, error="manager away"), sample(8.0, 10), 80, 23)
    assert away[-1] == "no answer: manager away"


def test_what_a_silent_shard_has_is_unknown() -> None:
    """law: silent-is-unknown."""

    def shards(of: Sample, *answer: bool) -> Sample:
        assert of.state is not None
        assert of.size is not None
        of.state.shards = [ShardRow(number=number, answers=each) for number, each in enumerate(answer)]
        of.size.by_shard = [
            ShardSize(number=number, messages=1, recipients=1) for number, each in enumerate(answer) if each
        ]
        return of

    before, now = shards(sample(8.0, 10), True, True), shards(sample(10.0, 30), True, False)
    assert now.state is not None
    assert now.destinations is not None
    now.state.unanswered = "shard 1 does not answer"
    assert rates_of(now, before)["recipients_delivered"] is None, "the other one was counted then"
    assert rates_of(before, now)["recipients_delivered"] is None
    assert rates_of(now, shards(sample(8.0, 10), True, False))["recipients_delivered"] == 10.0
    lines = frame(now, before, 80, 23)
    assert "queue: at least 3 messages, 3 recipients, 1 new, 2 deferred" in lines
    assert "shard 1 does not answer" in lines
    now.state.unanswered = ""
    now.destinations.unanswered = "shard 1 does not answer, and its mail is not counted"
    assert "shard 1 does not answer, and its mail is not counted" in frame(now, before, 80, 23)
    now.destinations.unanswered = ""
    assert "shard 1 has not answered how much mail it has" in frame(now, before, 80, 23)


def answering(waypost: Waypost) -> Waypost:
    for operation in ("state", "size", "destinations"):
        waypost.running.manager.answers[operation] = lambda _: {}
    return waypost


async def test_once_prints_a_frame_or_a_document(waypost: Waypost) -> None:
    answering(waypost)
    said = await waypost("top", "--once", "--interval", "0.5")
    assert said.status == 0
    assert said.out.startswith("waypost top  ")
    assert (await waypost("top", "--once", "--interval", "0.5", "--json")).json["interval_s"] >= 0.5
    assert (await waypost("top", "--interval", "0")).status == 2


async def test_once_ends_with_status_1_if_a_shard_or_the_manager_does_not_answer(waypost: Waypost) -> None:
    """law: silent-is-unknown."""
    words = "shard 2 at b does not answer, and its mail is not counted: away"
    answering(waypost).running.manager.answers["destinations"] = lambda _: {"unanswered": words}
    said = await waypost("top", "--once", "--interval", "0.5", "--json")
    assert (said.status, said.json["unanswered"]) == (1, OTHER_WORDS)
    assert (await waypost("top", "--once", "--interval", "0.5")).status == 1
    await waypost.running.lose_the_manager()
    assert (await waypost("top", "--once", "--interval", "0.5")).status == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_terminal_is_given_back(waypost: Waypost, number: signal.Signals) -> None:
    answering(waypost)
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it is ignored below a shell's "&"
        os.execv(
            sys.executable,
            [
                sys.executable,
                "-m",
                "mailcore.cli.main",
                "top",
                "--interval",
                "0.5",
                "--config",
                str(waypost.running.config),
            ],
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(terminal, False)
    seen = ""
    sent = False
    until = time.monotonic() + 30
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        try:
            seen += os.read(terminal, 65536).decode()
        except BlockingIOError:
            continue
        except OSError:
            break  # the program has ended
        if "queue:" in seen and not sent:
            os.kill(pid, number)
            sent = True
    else:
        os.kill(pid, signal.SIGKILL)  # and the assertions below show what it printed
    await asyncio.to_thread(os.waitpid, pid, 0)
    os.close(terminal)
    assert seen.startswith(ENTER)
    assert seen.endswith(LEAVE)
    assert "Traceback" not in seen
