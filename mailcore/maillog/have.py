"""The lines that the log files have, so that a manager that was killed and started again logs none of them twice.

A line says the same as another if message and recipient, status and reply are the same. Time and process id differ. So do the
delays of a final verdict without an attempt; a final verdict comes once, so its delays are not compared.

Keeps law: ends-are-logged (docs/laws.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

__all__ = ["Have"]

_STAMP = re.compile(rb"^\S+ +\d+ [0-9:]+ \S+ \S+\[\d+\]: ")
_DELAYS = re.compile(rb"delay=[^,]*, delays=[^,]*, ")
_DEFERRED = b"status=deferred"


class Have:
    """Counts the lines of ``mail.log`` and the objects of ``mail.jsonl``; each may be asked for as often as it is there."""

    def __init__(self, lines: Iterable[bytes], objects: Iterable[bytes]) -> None:
        self._lines = Counter(_line_key(_STAMP.sub(b"", line, count=1)) for line in lines if _STAMP.match(line))
        self._objects = Counter(_object_key(line) for line in objects)

    def has_line(self, text: str) -> bool:
        """Returns whether ``mail.log`` has a line with this text, and counts it off."""
        return _count_off(self._lines, _line_key(text.encode("utf-8", "backslashreplace")))

    def has_object(self, line: str) -> bool:
        """Returns whether ``mail.jsonl`` has an object that says the same, and counts it off."""
        return _count_off(self._objects, _object_key(line.encode()))


def _count_off(counter: Counter[bytes], key: bytes) -> bool:
    if counter[key] <= 0:
        return False
    counter[key] -= 1
    return True


def _line_key(text: bytes) -> bytes:
    return text if _DEFERRED in text else _DELAYS.sub(b"", text)


def _object_key(line: bytes) -> bytes:
    """Returns what an object says; the line itself if it is torn."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return line
    for name in ("time", "pid", *(() if fields.get("status") == "deferred" else ("delay_s", "delays_s"))):
        fields.pop(name, None)
    return msgspec.json.encode(fields, order="sorted")
