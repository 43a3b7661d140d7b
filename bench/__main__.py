"""Runs all benchmarks that have a peer and writes one page: ``python -m bench [--short | --brief] [--page PAGE]``.

The parts (bench.suite) run one after the other, each in a process of its own with a limit of time. If a part fails or takes too
long, the page says so and the suite continues. ``--results`` keeps the JSON of each part: a later run with ``--only`` measures
some parts again, and the page has all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.processes import tree
from bench.suite import PARTS, WANTED, Part, Scale
from bench.suite_page import Done, loop_s, machine, page

__all__ = ["main", "run_part"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/benchmarks-suite.md")
NAMES = [part.name for part in PARTS]
END_S = 60.0  # that a part has to end what it started, after SIGINT
ERROR_LINES = 3  # of its output
LEAST_S = 20.0  # a part is not begun with less time left


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a part and everything it started: SIGINT first, so that it can do so itself."""
    started = tree(process.pid)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def run_part(part: Part, scale: Scale, directory: Path, results: Path, left_s: float = float("inf")) -> Done:
    """Runs a part; its JSON becomes ``results``/NAME.json with what the page says about it. ``left_s``: of all parts."""
    loops = [loop_s()]
    arguments = part.arguments[scale].split()
    command = f"python -m bench.{part.module} {part.arguments[scale]}"
    runs, output = results / f"{part.name}.runs.json", results / f"{part.name}.txt"
    runs.unlink(missing_ok=True)
    began_at, begun, error = time.time(), time.monotonic(), ""
    limit_s = min(part.limits_s[scale], left_s)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background: the part would ignore it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("w") as out:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"bench.{part.module}",
                *arguments,
                "--directory",
                str(directory),
                "--json",
                str(runs),
            ],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            error = f"it took longer than {limit_s:.0f} s and was ended"
        except BaseException:
            _end(process)
            raise
    said = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    found: object = None
    if not error:
        # A benchmark that misses its own target ends with 1, and has results nonetheless.
        try:
            found = json.loads(runs.read_text())
        except (OSError, ValueError):
            error = f"it ended with {process.returncode}: {' / '.join(said[-ERROR_LINES:])[:500]}"
        if wrong := [line for line in said if line.startswith("WRONG")]:
            error = f"its results are wrong: {' / '.join(wrong)[:500]}"
    runs.unlink(missing_ok=True)
    kept = {
        "scale": scale,
        "command": command,
        "began_at": began_at,
        "seconds": time.monotonic() - begun,
        "loops_s": [*loops, loop_s()],
        "error": error,
        "results": found,
    }
    (results / f"{part.name}.json").write_text(json.dumps(kept, indent=1))
    done = read_part(part, results)
    assert done is not None
    return done


def read_part(part: Part, results: Path) -> Done | None:
    """Reads what was kept of a part; None if it never ran."""
    path = results / f"{part.name}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text())
    error = kept["error"]
    rows = []
    if not error:
        try:
            rows = part.rows(kept["results"])
        except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as wrong:  # a run of only one relay
            error = f"its results lack something: {wrong!r}"
    scale = Scale(kept["scale"])
    return Done(
        part,
        scale,
        kept["command"],
        kept["began_at"],
        kept["seconds"],
        tuple(rows),
        error,
        tuple(kept.get("loops_s", ())),
    )


def run_all(parts: Sequence[Part], scale: Scale, directory: Path, results: Path, minutes: float) -> None:
    """Runs the parts and prints what becomes of each; those for which no time is left have no result."""
    end = time.monotonic() + minutes * 60
    for number, part in enumerate(parts, 1):
        left_s = end - time.monotonic()
        if left_s < LEAST_S:
            print(f"[{number}/{len(parts)}] {part.name}: no time is left", flush=True)
            continue
        words = (
            f"[{number}/{len(parts)}] {part.name}: {part.title}, {part.limits_s[scale] / 60:.0f} minutes at the most"
        )
        print(words, flush=True)
        done = run_part(part, scale, directory, results, left_s)
        for row in done.rows:
            ratio = "" if row.ratio is None else f", {row.ratio:.2f} x better than {part.peer}"
            print(f"    {row.what}: {row.ours:.4g} {row.unit}{ratio}")
        print(f"    {'FAILED: ' + done.error if done.error else 'done'} after {done.seconds:.0f} s", flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    scales = parser.add_mutually_exclusive_group()
    words = "each part tiny, a few minutes: a quick check, no result"
    scales.add_argument("--short", dest="scale", action="store_const", const=Scale.SHORT, help=words)
    words = "a quarter of an hour: figures of few runs"
    scales.add_argument("--brief", dest="scale", action="store_const", const=Scale.BRIEF, help=words)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="PART", help="run these parts; see --list")
    parser.add_argument("--skip", nargs="+", choices=NAMES, metavar="PART", default=[], help="leave these parts out")
    parser.add_argument("--minutes", type=float, default=240.0, help="end after this time; later parts are left out")
    parser.add_argument("--list", action="store_true", help="list the parts and their commands, and end")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the queues lie below; no tmpfs")
    parser.add_argument("--results", type=Path, metavar="DIRECTORY", help="keep and reuse the JSON of each part there")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"the page to write (default: {PAGE})")
    parser.set_defaults(scale=Scale.FULL)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the suite; returns 1 if a part has no result."""
    given = _arguments(argv)
    parts = [part for part in PARTS if part.name in (given.only or NAMES) and part.name not in given.skip]
    if given.list:
        for part in parts:
            print(f"{part.name:14} {part.title}\n{'':14} python -m bench.{part.module} {part.arguments[given.scale]}")
        return 0
    with contextlib.ExitStack() as stack:
        if given.results is None:
            results = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-suite-")))
        else:
            results = given.results
            results.mkdir(parents=True, exist_ok=True)
        try:
            run_all(parts, given.scale, given.directory, results, given.minutes)
        except KeyboardInterrupt:
            print("interrupted: the page has the parts that ended", file=sys.stderr)
        done = [each for part in PARTS if (each := read_part(part, results)) is not None]
    given.page.write_text(page(done, WANTED, machine(given.directory)))
    ended = {each.part.name for each in done if not each.error}
    missing = [part.name for part in parts if part.name not in ended]
    print(f"{given.page}: {len(ended)} parts" + (f"; without a result: {', '.join(missing)}" if missing else ""))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
