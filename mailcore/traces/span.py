"""A span, as OpenTelemetry has it, and as JSON of OTLP.

Times are nanoseconds since 1970; ids are hexadecimal (OTLP, "JSON Protobuf Encoding"). Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = ["Event", "Kind", "Link", "Span", "Value", "request_of"]

Value = str | int | float | bool | tuple[str, ...]
TEXT_CHARACTERS_MAX = 256  # of a value
_ERROR = 2  # STATUS_CODE_ERROR
_SCOPE = "waypost"


class Kind(enum.IntEnum):
    """SpanKind of OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at one moment of a span."""

    name: str
    at: float  # wall clock, seconds
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Link:
    """A span of another trace that belongs to this one."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Span:
    """One span. ``start`` and ``end`` are wall clock, in seconds; ``error`` is the error.type, "" without an error."""

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str
    start: float
    end: float
    attributes: Mapping[str, Value]
    error: str = ""
    events: Sequence[Event] = ()
    links: Sequence[Link] = ()


def request_of(spans: Sequence[Span], resource: Mapping[str, Value], version: str) -> bytes:
    """Returns the body of a request: an ExportTraceServiceRequest in JSON."""
    scope = {"scope": {"name": _SCOPE, "version": version}, "spans": [_span(each) for each in spans]}
    whole = {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}
    return msgspec.json.encode(whole)


def nanoseconds(at: float) -> str:
    """Returns a time as OTLP's JSON has it: 64 bits, as text."""
    return str(max(round(at * 1e9), 0))


def _span(span: Span) -> dict[str, Any]:
    attributes = {**span.attributes, "error.type": span.error} if span.error else span.attributes
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(max(span.end, span.start)),
        "attributes": _attributes(attributes),
    }
    if span.events:
        made["events"] = [
            {"name": each.name, "timeUnixNano": nanoseconds(each.at), "attributes": _attributes(each.attributes)}
            for each in span.events
        ]
    if span.links:
        made["links"] = [{"traceId": each.trace_id, "spanId": each.span_id} for each in span.links]
    if span.error:
        made["status"] = {"code": _ERROR}
    return made


def _attributes(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    """Returns attributes without those that are empty."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items() if value not in ("", ())]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, tuple):
        return {"arrayValue": {"values": [{"stringValue": _text(each)} for each in value]}}
    return {"stringValue": _text(value)}


def _text(text: str) -> str:
    """Returns at most ``TEXT_CHARACTERS_MAX`` characters that UTF-8 has."""
    return text[:TEXT_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
