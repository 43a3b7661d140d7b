"""The cost of looking at the queue as it was: seconds and memory, over made events.

    python -m bench.past_queue [MESSAGES] [QUEUED_SHARE]

MESSAGES arrive evenly over a day; a share of them is deferred again and again and still queued at its end, the others are
delivered at once. Told: seconds to find the queue of the day's end, to count it, for its first page and for one in its middle,
and how much memory the process took more.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mailcore.events.read.archive import EventArchive
from mailcore.events.write.cutoff import CUTS
from mailcore.events.write.files import StretchFiles
from mailcore.log.disk import Disk
from mailcore.lookup.archive import Trouble
from mailcore.lookup.tracing import Walk
from mailcore.queue.queue_id import QueueIds

DAY = 1_795_219_200.0
STRETCH = 50_000  # messages: a segment of 32 MB, or less
RETRIES = 3


def made(events: Path, messages: int, share: float) -> None:
    """Writes a day: files of arrivals and of the journal, and a count before the first message."""
    now = DAY
    ids = QueueIds(0, lambda: now)
    queued_every = round(1 / share) if share else messages + 1
    offset = 0
    waiting: list[str] = []
    for first in range(0, messages, STRETCH):
        arrivals = StretchFiles(Disk(), str(events), "incoming.0", first)
        journal = StretchFiles(Disk(), str(events), "journal", offset)
        start = offset
        some = []
        for number in range(first, min(first + STRETCH, messages)):
            now = DAY + 80_000 * number / messages
            queue_id = ids.next()
            origin = ("smtp", "192.0.2.1", "h", "", "<m@x>", "", None, "", "")
            accepted = (
                0,
                now,
                queue_id,
                f"a{number % 1000}@s.example",
                4000,
                1,
                [f"u{number}@d{number % 5000}.example"],
                0,
            )
            arrivals.add("accepted", number, (*accepted, *origin))
            some.append((queue_id, number))
            is_queued = number % queued_every == queued_every - 1
            status, reply = ("deferred", "450 4.2.0 later") if is_queued else ("delivered", "250 2.0.0 Ok: queued as 1")
            if is_queued:
                waiting.append(queue_id)
            journal.add("attempt", offset, _attempt(now, queue_id, status, reply, number))
            journal.add(*_end(is_queued, offset + 1, now, queue_id))
            offset += 2
        if first % (STRETCH * 4) == 0:
            for queue_id in waiting[-STRETCH:]:  # those that came before are tried again
                journal.add("attempt", offset, _attempt(now, queue_id, "deferred", "450 4.2.0 still later", 7))
                journal.add(*_end(True, offset + 1, now, queue_id))
                offset += 2
        arrivals.complete(first + STRETCH, DAY)
        journal.complete(max(offset, start + 1), DAY)
    cut = {"at": DAY - 1, "lanes": {}, "messages": 0, "recipients": 0}
    (events / CUTS).mkdir()
    name = datetime.fromtimestamp(DAY - 1, UTC).strftime("%Y-%m-%dT%H%M%S.%fZ.json")
    (events / CUTS / name).write_text(json.dumps(cut))


def _attempt(now: float, queue_id: str, status: str, reply: str, number: int) -> tuple[Any, ...]:
    domain = f"d{number % 5000}.example"
    delays = (0.1, 0.0, 0.1, 0.2)
    return (
        0, now, queue_id, 1, 0, status, reply[4:9], reply, f"smtp:{domain}", f"mx.{domain}[192.0.2.9]:25", "", *delays, 0,
        domain, "s.example", "192.0.2.2", False, "", 4000, "",
    )  # fmt: skip


def _end(is_queued: bool, offset: int, now: float, queue_id: str) -> tuple[str, int, tuple[Any, ...]]:
    if is_queued:
        return "replaced", offset, (0, now, queue_id, 0, "retry.300", now + 300)
    return "finished", offset, (0, now, queue_id, 0, "")


def _memory() -> float:
    """The most that this process has taken, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(events: Path) -> dict[str, Any]:
    """Looks at the end of the day, in a process that has read nothing before."""
    trouble = Trouble()
    archive = EventArchive(Disk(), str(events))
    archive.since(trouble)  # pyarrow is loaded: every search has that
    before = _memory()
    began = time.process_time()
    walk = Walk(archive.queue_at(DAY + 86_000, 3600.0, trouble))
    while not walk.go(1e9, time.monotonic):
        pass
    then = walk.result
    assert then is not None
    found: dict[str, Any] = {
        "find_s": time.process_time() - began,
        "messages": then.messages,
        "agrees": then.balance.agrees,
    }
    found["find_mb"] = _memory() - before
    began = time.process_time()
    counted: dict[str, int] = {}
    for chunk in then.walk("", trouble):
        for each in chunk or ():
            for state, count in each.message.states(then.at).items():
                counted[state] = counted.get(state, 0) + count
    found |= {"count_s": time.process_time() - began, "states": counted, "trouble": str(trouble)}
    for name, after in (("first", ""), ("middle", f"{DAY + 40_000!r}:")):
        began = time.process_time()
        chunk = next((chunk for chunk in then.walk(after, trouble) if chunk), [])
        steps = then.envelopes(chunk[:100], trouble)
        Walk(steps).go(1e9, time.monotonic)
        found[f"{name}_page_s"] = time.process_time() - began
    return found | {"all_mb": _memory() - before}


def main() -> None:
    """Makes the events in a process of its own, and measures in this one."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    home = Path(tempfile.mkdtemp())
    try:
        if not (pid := os.fork()):
            made(home, messages, share)
            os._exit(0)
        os.waitpid(pid, 0)
        for name, value in measure(home).items():
            print(f"{name:14} {value:.2f}" if isinstance(value, float) else f"{name:14} {value}")
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
