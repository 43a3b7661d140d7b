"""A restart with a clock that was set back: no queue id comes twice, and no message ends with another that has its id.

law: ids-never-reused.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import COMMAND
from tests.running.running_core import DATA, RunningCore, Sections, recipients_of, route_to

HOUR_S = 3600.0
# Every Python of the core reads this first.
SLOW_CLOCK = "import os, time\nreal = time.time\ntime.time = lambda: real() - float(os.environ['BEHIND_S'])\n"


class CoreWithClock(RunningCore):
    """A core whose wall clock is ``behind_s`` behind; the monotonic clock is real."""

    behind_s = 0.0

    def launch(self) -> None:
        (self.directory / "sitecustomize.py").write_text(SLOW_CLOCK)
        paths = [str(self.directory), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [str(COMMAND), "mailcore", "--config", str(self.config)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "BEHIND_S": str(self.behind_s)}
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)


async def test_no_queue_id_comes_twice_when_the_clock_is_set_back_over_a_restart(tmp_path: Path) -> None:
    """Over SMTP and over the control socket: the ids go on where they were, and all mail arrives."""
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        core = CoreWithClock(tmp_path, {"*": route_to(lab, 0)})
        await core.start()
        try:
            before = [await core.send("a@example.org"), await core.inject("b@example.org")]
            core.stop()
            await core.control.close()
            core.behind_s = HOUR_S
            await core.start()
            after = [await core.send("c@example.org"), await core.inject("d@example.org")]
            assert after[0] > before[0]
            assert after[1] > before[1]
            await core.until_empty()
            # What was in flight when the core was killed may come twice.
            assert sorted({*recipients_of(lab.messages)}) == [f"{each}@example.org" for each in "abcd"]
        finally:
            core.stop()
            await core.control.close()


async def test_messages_are_found_by_their_ids_when_the_clock_is_set_back_over_a_restart(tmp_path: Path) -> None:
    """Those that arrived before and those that arrive after it, whose lanes have several segments of both times."""
    data = DATA + b"Line after line.\r\n" * 6_000
    queue = {"retry_ladder_s": [600], "carry_limit": 1 << 20, "refer_deferred": False}
    sections: Sections = {"queue": queue, "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0}}
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        core = CoreWithClock(tmp_path, {"*": route_to(lab, 0)}, sections)
        await core.start()
        try:
            sent = [await core.send("a@example.org", data=data) for _ in range(25)]
            await core.until_in(sent[-1], "retry")
            core.stop()
            await core.control.close()
            core.behind_s = HOUR_S
            await core.start()
            sent += [await core.send("b@example.org", data=data) for _ in range(25)]
            await core.until_in(sent[-1], "retry")
            assert sum(1 for _ in (core.home / "queue" / "retry.600").glob("*.seg")) > 4
            for queue_id in sent:
                events = [e for part in await parts(core, "history", queue_id) for e in part.get("events", ())]
                assert [event["event"] for event in events][:1] == ["accepted"], queue_id
                found = [hit for part in await parts(core, "search", queue_id) for hit in part.get("items", ())]
                assert len(found) == 1, queue_id
        finally:
            core.stop()
            await core.control.close()


async def parts(core: RunningCore, operation: str, queue_id: str) -> list[dict[str, Any]]:
    return [part async for part in core.control.parts(operation, {"queue_id": queue_id})]
