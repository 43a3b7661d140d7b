"""A collector of OpenTelemetry on loopback: reads each request with the official messages, and answers as it should."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Received", "Seen", "collector"]

IDS = ("traceId", "spanId", "parentSpanId")  # hexadecimal in OTLP's JSON, base64 in that of Protocol Buffers


class Seen:
    """One span as the collector read it."""

    def __init__(self, span: Any) -> None:
        self.name: str = span.name
        self.kind: int = span.kind
        self.trace_id: str = span.trace_id.hex()
        self.span_id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.start_ns: int = span.start_time_unix_nano
        self.end_ns: int = span.end_time_unix_nano
        self.attributes = attributes(span.attributes)
        self.events = {event.name: (event.time_unix_nano, attributes(event.attributes)) for event in span.events}
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.is_error: bool = span.status.code == 2

    @property
    def queue_id(self) -> str:
        return str(self.attributes["waypost.queue_id"])


def attributes(given: Any) -> dict[str, Any]:
    found = {}
    for each in given:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = tuple(item.string_value for item in value.values) if kind == "array_value" else value
    assert len(found) == len(given), "an attribute is there twice"
    return found


class Received:
    """What came. ``status`` is what the collector answers with; 0: nothing, ever. ``answer`` is the body of a 200."""

    def __init__(self) -> None:
        self.status = 200
        self.answer = b"{}"
        self.headers: dict[str, str] = {}
        self.port = 0
        self.requests = 0
        self.taken: list[list[Seen]] = []
        self.resource: dict[str, Any] = {}
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    @property
    def spans(self) -> list[Seen]:
        return [span for request in self.taken for span in request]

    def of(self, queue_id: str, name: str = "") -> list[Seen]:
        """The spans of one message by their time, each once."""
        once = {span.span_id: span for span in self.spans if span.queue_id == queue_id and name in ("", span.name)}
        return sorted(once.values(), key=lambda span: (span.start_ns, span.end_ns))

    def read(self, body: bytes) -> None:
        document = json.loads(body)
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for part in (span, *span.get("links", ())):
                        part |= {name: based(part[name]) for name in IDS if name in part}
        request = ParseDict(document, ExportTraceServiceRequest())  # an unknown field is an error
        for resource in request.resource_spans:
            self.resource = attributes(resource.resource.attributes)
            self.taken.append([Seen(span) for scope in resource.scope_spans for span in scope.spans])


def based(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@contextmanager
def collector(port: int = 0) -> Iterator[Received]:
    """Answers until the end of the block."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests += 1
            status, answer = received.status, received.answer
            if not status:
                received.ended.wait()
                return
            if status == 200 and json.loads(body)["resourceSpans"]:
                received.read(body)
            self.send_response(status)
            for name, value in received.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", port), Handler) as server:
        received.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield received
        finally:
            received.ended.set()
            server.shutdown()
            thread.join()
