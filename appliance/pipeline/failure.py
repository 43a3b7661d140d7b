"""Why it failed, in one line for people: of Java's chain of causes the deepest, without stacks and names of packages."""

from __future__ import annotations

import re
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError

__all__ = ["in_short"]

LINE_MAX = 500
JAVA_ENDED = "Java exited unexpectedly; if memory ran out, the kernel log says so"
STOPPED = "Spark stopped in the middle of it"
_STOPPED = "Cannot call methods on a stopped SparkContext"  # Spark's words when its master does not answer
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CAUSE = re.compile(r"^Caused by: (.+)$", re.M)
_TOLD = re.compile(r"^: (.+)$", re.M)  # py4j's second line: what Java threw
_PACKAGES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
_LAST_ERROR = re.compile(r".*\b([A-Z]\w*(?:Exception|Error): .*)")  # of "…, most recent failure: …: IOException: words"


def in_short(error: BaseException, output: Path | None = None, master: str = "local") -> str:
    """Returns the message of the file or the disk, without what Spark wraps around it. ``output``: the directory to
    name if a disk is full; ``master``: the Spark master to name if it did not answer."""
    line = _line(error)
    if _STOPPED in line:
        return STOPPED if master.startswith("local") else f"Spark's master {master} did not answer, or refused"
    if output is not None and _FULL.search(line):
        return f"{line}, below {output.absolute()}"
    return line


def _line(error: BaseException) -> str:
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return f"{JAVA_ENDED} ({type(error).__name__})"
    try:
        text = str(error)
    except (Py4JError, OSError):  # py4j asks Java for the words
        return f"{JAVA_ENDED} ({type(error).__name__})"
    stack = getattr(error, "_stackTrace", None)  # of PySpark's own exceptions, whose words leave the causes out
    causes = _CAUSE.findall(stack if isinstance(stack, str) else text) or _TOLD.findall(text)
    if not causes:
        return f"{type(error).__name__}: {next(iter(text.splitlines()), '')}"[:LINE_MAX]
    line = _PACKAGES.sub("", causes[-1])
    last = _LAST_ERROR.fullmatch(line)
    return (last[1] if last else line)[:LINE_MAX]
