"""Measures lists and filters of a big queue, beside Postfix: ``python -m bench.browse [--count N]``.

Waypost's queue is filled by its own writers (bench.fill), Postfix's with copies of one deferred message and of its reason. No
message is due meanwhile. Each question is asked on the command line, its start included, of one relay and then of the other,
and the lines of the answer are counted. Postfix has one command for all of them, whose output is cut or searched. With
``--peer-count`` Postfix has fewer messages, because copies take long: then compare the time for each message.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.fill import DESTINATIONS, fill
from bench.load import Sink, Source
from bench.mta import Mta, Postfix, Waypost, waypost_command
from bench.processes import free_port, memory, wait_until
from bench.turns import refusal, work_directory

__all__ = ["main"]

PAGE = 100
LATER_S = 3_600.0
QUESTIONS = {
    "first page": "the first 100 messages",
    "whole queue": "all messages",
    "last recipient": "the only message for a recipient, found last",
    "count": "how many messages there are",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer."""

    relay: str
    question: str
    queued: int
    seconds: float
    lines: int


def copies(postfix: Postfix, count: int) -> None:
    """Copies the deferred message of a running Postfix until there are ``count``; none of them is due for a day.

    A start of Postfix would rename all of them, because the name of a queue file holds its inode.
    """
    queue = postfix.settings.parent / "queue"
    (message,) = [path for path in (queue / "deferred").rglob("*") if path.is_file()]
    (reason,) = [path for path in (queue / "defer").rglob("*") if path.is_file()]
    owner, later = message.stat(), time.time() + 86_400
    contents = {"deferred": message.read_bytes(), "defer": reason.read_bytes()}
    modes = {"deferred": message.stat().st_mode & 0o777, "defer": reason.stat().st_mode & 0o777}
    os.utime(message, (later, later))
    for first in "0123456789ABCDEF":
        for name in contents:
            (queue / name / first).mkdir(exist_ok=True)
            shutil.chown(queue / name / first, owner.st_uid, owner.st_gid)
            (queue / name / first).chmod(0o700)
    for number in range(count - 1):
        queue_id = f"{number % 16:X}{number:09X}A"
        for name, content in contents.items():
            path = queue / name / queue_id[0] / queue_id
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            os.write(fd, content)
            os.fchown(fd, owner.st_uid, owner.st_gid)
            os.fchmod(fd, modes[name])
            os.close(fd)
            os.utime(path, (later, later))


def filled_postfix(directory: Path, count: int) -> Postfix:
    """Returns a running Postfix with ``count`` deferred messages."""
    refusing = Sink(directory, "-r", "RCPT")
    refusing.start()
    postfix = Postfix(directory, refusing.port)
    try:
        postfix.start()
        Source().run(postfix.port, 1, keep=True, timeout_s=60)
        deferred = postfix.settings.parent / "queue/deferred"
        wait_until(lambda: any(path.is_file() for path in deferred.rglob("*")), "a deferred message")
        copies(postfix, count)
    except BaseException:
        postfix.stop()
        raise
    finally:
        refusing.stop()
    return postfix


def filled_waypost(directory: Path, count: int) -> Waypost:
    """Returns a running Waypost with ``count`` deferred messages."""
    port = free_port()
    waypost = Waypost(directory, port)
    fill(waypost.home, count, f"smtp:[127.0.0.1]:{port}", due_in=lambda _: LATER_S, carried=True)
    waypost.start()
    return waypost


def commands(relay: Mta, queued: int) -> dict[str, str]:
    """Returns a line for the shell for each question."""
    if isinstance(relay, Postfix):
        listing = f"postqueue -c {relay.settings} -j"
        # The recipients of the copies are all the same, so the last one is found by its queue id.
        last = f"{(queued - 2) % 16:X}{queued - 2:09X}A"
        cut = {"first page": f"head -n {PAGE}", "last recipient": f"grep -F {last}", "count": "wc -l"}
        return {each: f"{listing} | {cut[each]}" if each in cut else listing for each in QUESTIONS}
    assert isinstance(relay, Waypost)
    program, config = " ".join(waypost_command()), f"--json --config {relay.config}"
    number = queued - 1
    return {
        "first page": f"{program} queue list --limit {PAGE} {config}",
        "whole queue": f"{program} queue list --all {config}",
        "last recipient": f"{program} queue list --recipient r{number}@d{number % DESTINATIONS}.example.org --all {config}",
        "count": f"{program} queue size {config}",
    }


def ask(relay: Mta, question: str, queued: int) -> Asked:
    """Asks once. Raises CalledProcessError."""
    command = commands(relay, queued)[question]
    begun = time.monotonic()
    lines = 0
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while block := process.stdout.read(1 << 16):
            lines += block.count(b"\n")
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Asked(relay.name, question, queued, time.monotonic() - begun, lines)


def report(runs: Sequence[Asked]) -> list[str]:
    """Returns a line for each question, medians."""
    lines = []
    for question, what in QUESTIONS.items():
        parts = []
        for name in dict.fromkeys(run.relay for run in runs):
            mine = [run for run in runs if (run.relay, run.question) == (name, question)]
            parts.append(f"{name} {statistics.median(run.seconds for run in mine):.2f} s of {mine[0].queued:,}")
        lines.append(f"{what}: " + ", ".join(parts))
    return lines


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.browse", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="2 000 messages, one round: a quick check, no result")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--peer-count", type=int, help="of Postfix; default: as many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="a million need 12 GB")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all runs, for a closer look")
    given = parser.parse_args(argv)
    if given.short:
        given.rounds, given.count, given.peer_count = 1, 2_000, 2_000
    given.peer_count = given.peer_count or given.count
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    given = _arguments(argv)
    if missing := refusal(given.directory):
        print(f"bench.browse: {missing}", file=sys.stderr)
        return 1
    runs: list[Asked] = []
    pss: dict[str, int] = {}
    makers: dict[str, tuple[Callable[[Path, int], Mta], int]] = {
        "postfix": (filled_postfix, given.peer_count),
        "waypost": (filled_waypost, given.count),
    }
    for name, (make, count) in makers.items():  # one after the other: a million files of one would fill the cache
        with work_directory("browse", given.directory) as directory:
            begun = time.monotonic()
            relay = make(directory, count)
            print(f"{name}: filled with {count:,} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
            try:
                for number in range(given.rounds):
                    for question in QUESTIONS:
                        runs.append(ask(relay, question, count))
                        words = f"{name} {number + 1}/{given.rounds} {question}: {runs[-1].seconds:.2f} s"
                        print(f"{words}, {runs[-1].lines} lines", file=sys.stderr, flush=True)
                pss[name] = memory(relay.pid).pss
            finally:
                relay.stop()
    print("\n".join(report(runs)))
    if given.json is not None:
        given.json.write_text(json.dumps({"runs": [asdict(run) for run in runs], "pss": pss}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
