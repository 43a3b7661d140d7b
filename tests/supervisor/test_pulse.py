"""The pulse of a child: when its work has begun, and whether it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.events.exporter import EXPORTER_SOCKET
from mailcore.supervisor.pulse import BEAT_S, PULSE, Beats, Pulse, beat, until_begun
from tests.end_to_end.appliance import Appliance
from tests.eventually import PATIENCE_S

SILENT_S = 5


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    made = Pulse()
    yield made
    made.close()


def test_what_has_not_begun_is_not_silent(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pulse.silent_s() == 0
    clock = time.monotonic() + 1000
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    assert pulse.silent_s() == 0
    os.write(pulse.writer, b".")
    assert pulse.silent_s() == 0
    clock += 7
    assert pulse.silent_s() == 7
    os.write(pulse.writer, b"..")
    clock += 100  # the supervisor looks late, and hears it now
    assert pulse.silent_s() == 0


async def test_a_child_goes_on_saying_so_and_hands_it_to_nobody(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PULSE, str(os.dup(pulse.writer)))
    os.set_inheritable(int(os.environ[PULSE]), True)
    writer = int(os.environ[PULSE])
    monkeypatch.setattr("mailcore.supervisor.pulse.BEAT_S", 0.01)
    beat(asyncio.get_running_loop())
    assert PULSE not in os.environ
    assert not os.get_inheritable(writer)
    heard = 0
    while heard < 3:
        await asyncio.sleep(0.02)
        heard += len(os.read(pulse.reader, 100))


def test_without_a_supervisor_there_is_nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PULSE, raising=False)
    with asyncio.Runner() as runner:
        beat(runner.get_loop())


def test_the_others_wait_until_all_have_begun_or_ended(pulse: Pulse) -> None:
    ended = Pulse()
    ended.started()  # nobody else has its end
    os.write(pulse.writer, b".")
    until_begun([pulse, ended], PATIENCE_S)  # or the suite's limit
    assert pulse.silent_s() < PATIENCE_S
    until_begun([Pulse()], 0.01)  # hangs at its start: the others go on without it
    ended.close()


def test_a_child_without_a_loop_beats_when_it_makes_progress(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PULSE, str(os.dup(pulse.writer)))
    clock = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    beats = Beats()
    for _ in range(10):
        beats.now()
    clock += BEAT_S
    beats.now()
    assert os.read(pulse.reader, 100) == b"..", "once a second"


async def test_a_process_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, {}, {"supervisor": {"silent_s": SILENT_S}, "export": {"enabled": True}})
    await appliance.start()
    try:
        # One that has not begun its work has no pulse yet; ready() knows of the manager and the receiver only.
        await appliance.until((appliance.home / "run" / EXPORTER_SOCKET).exists, "the exporter's socket")
        await appliance.ask("export", "--now")
        async with appliance.client() as client:

            async def connected() -> bool:
                return bool((await client.call("state"))["deliverers"])

            await appliance.until(connected, "the deliverer")
        before = appliance.processes()
        hanging = ("deliverer.0", "manager", "exporter")
        for name in hanging:
            os.kill(before[name], signal.SIGSTOP)
        await appliance.until(
            lambda: all(appliance.processes()[name] != before[name] for name in hanging), "new processes"
        )
        await appliance.ready()
        told = (appliance.home / "log/mail.log").read_text()
        for name in hanging:
            assert f"process {name} pid {before[name]} ended: signal SIGKILL, as it had hung for" in told
        assert appliance.processes()["receiver.0"] == before["receiver.0"]  # it goes on beating
    finally:
        appliance.stop()
