"""The trace of a message: its ids, computed and never stored, and whether the message is sampled.

A trace id is the first 16 bytes of the SHA-256 of ``QUEUE_ID@HOSTNAME``, the id of its root span the next 8. The id of any
other span is the first 8 bytes of the SHA-256 of ``QUEUE_ID@HOSTNAME LANE:OFFSET NAME``, the place of its record in the log. So
the same record gives the same span each time it is read.

Keeps law: spans-from-the-log (docs/laws.md).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

__all__ = ["Context", "Contexts"]

# W3C Trace Context 3.2: version 00 has four fields, a later one may have more behind them; ff is not a version.
_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<parent>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_SAMPLED = 1  # W3C Trace Context 3.2.2.5
_BITS = 64  # of a trace id, by which OpenTelemetry's TraceIdRatioBased samples


class Context(NamedTuple):
    """Where the spans of a message belong. ``parent_id``: the remote span above the root; "" without one."""

    trace_id: str
    root_id: str
    parent_id: str
    sampled: bool


class Contexts:
    """Computes the contexts of messages. ``from_tag``: the tag of a message may be a traceparent."""

    def __init__(self, hostname: str, ratio: float, *, from_tag: bool) -> None:
        self._hostname = hostname
        self._bound = round(ratio * (1 << _BITS))
        self.from_tag = from_tag

    def of(self, queue_id: str, tag: str) -> Context:
        """Returns the context of a message."""
        digest = sha256(f"{queue_id}@{self._hostname}".encode("utf-8", "replace")).hexdigest()
        root_id = digest[32:48]
        given = _TRACEPARENT.fullmatch(tag) if self.from_tag and tag else None
        if given is None or (given["version"] == "00" and given["more"]):
            return Context(digest[:32], root_id, "", self._samples(digest[:32]))
        sampled = bool(int(given["flags"], 16) & _SAMPLED) and self._samples(given["trace"])
        return Context(given["trace"], root_id, given["parent"], sampled)

    def span_id(self, queue_id: str, lane: str, offset: int, name: str) -> str:
        """Returns the id of a span other than the root."""
        text = f"{queue_id}@{self._hostname} {lane}:{offset} {name}"
        return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

    def _samples(self, trace_id: str) -> bool:
        return int(trace_id[16:], 16) < self._bound
