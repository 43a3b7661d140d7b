"""[traces]: traces of messages for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mailcore.bounds import bad, choice, flag, number, text, whole

__all__ = ["TRACEPARENT", "Traces", "collector_url", "settle"]

TRACEPARENT = "traceparent"  # W3C Trace Context
URL_CHARACTERS_MAX = 2000


def collector_url(given: str) -> str:
    """Returns the address of a collector. Raises BadValue."""
    form = 'must be an address for OTLP over HTTP, such as "http://127.0.0.1:4318/v1/traces"'
    if len(given) > URL_CHARACTERS_MAX or not given.isascii() or not given.isprintable() or " " in given:
        raise bad(given, form)
    try:
        url = urlsplit(given)
        is_right = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_right = False
    if not is_right or url.username is not None or url.fragment or url.path in ("", "/"):
        raise bad(given, form)
    return given


@dataclass(frozen=True, kw_only=True)
class Traces:
    """[traces]: a trace of each message, sent to a collector by OTLP over HTTP (docs/traces.md)."""

    endpoint: str = text(
        "",
        "address of the collector for OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; the exporter sends to it",
        collector_url,
        special={"": "no traces"},
    )
    ratio: float = number(1, 0, 1, "of the messages", "share of messages that have a trace, chosen by their trace ID")
    trace_id: str = choice(
        "queue_id",
        ("queue_id", TRACEPARENT),
        "made from the queue ID; or the one in the header field that [receiver] tag_header names, if that is a "
        "traceparent: the trace of the program that sent the mail then continues here",
    )
    addresses: bool = flag(
        False, "traces also have addresses of people: sender, recipients, client, login, and the replies of next hops"
    )
    service_name: str = text("waypost", "service.name of the traces")
    interval_s: float = number(1, 0.1, 3600, "seconds", "time between two looks at the log")
    timeout_s: float = number(10, 0.1, 600, "seconds", "time for an answer of the collector")
    batch_spans: int = whole(
        512, 2, 10_000, "spans", "spans of one request; a killed exporter sends at most these a second time"
    )
    messages_max: int = whole(
        10_000, 1, 1_000_000, "messages", "messages in the queue whose times are kept in memory for their spans"
    )


def settle(sections: Mapping[str, Mapping[str, Any]], fault: Callable[[tuple[str, str], str], None]) -> None:
    """Reports what [traces] needs of other sections and lacks."""
    traces = sections["traces"]
    if traces.get("endpoint") and not sections["export"].get("enabled", True):
        fault(("traces", "endpoint"), "needs the exporter, which sends the traces; set enabled in [export] to true")
    header = sections["receiver"].get("tag_header", "")
    if traces.get("trace_id") == TRACEPARENT and header.lower() != TRACEPARENT:
        fault(("traces", "trace_id"), f'needs the header field; set tag_header in [receiver] to "{TRACEPARENT}"')
