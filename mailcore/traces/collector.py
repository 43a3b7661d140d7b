"""Posts spans to the collector: one request, one answer (OTLP 1.x, "OTLP/HTTP")."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

__all__ = ["EMPTY", "Answer", "Collector", "CollectorFailed"]

EMPTY = b'{"resourceSpans":[]}'  # a request without spans, which asks whether the collector answers
ANSWER_BYTES_MAX = 65_536
WAIT_S_MAX = 60.0  # that an answer may ask for
_SENTENCE_CHARACTERS_MAX = 200
# The request is at fault and would be the next time, too. OTLP says so of all but 429, 502, 503 and 504; but of these, others
# (401, 404, 500) are repaired by the operator, and then the spans can be sent.
_REJECTED = (400, 413, 422)


class CollectorFailed(Exception):
    """Raised if the spans must be sent again later. ``wait_s``: what the collector asks for; 0.0: nothing."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Answer:
    """The outcome of a request: the number of spans that were rejected, and the reason."""

    rejected: int = 0
    why: str = ""


class Collector:
    """The collector at one address. ``timeout_s`` bounds each wait for the network."""

    def __init__(self, url: str, timeout_s: float, version: str) -> None:
        self._url: SplitResult = urlsplit(url)
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "User-Agent": f"waypost/{version}"}

    def post(self, body: bytes, spans: int) -> Answer:
        """Sends a request with this number of spans. Raises CollectorFailed."""
        url = self._url
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=self._timeout_s)
        target = url.path + (f"?{url.query}" if url.query else "")
        try:
            connection.request("POST", target, body, self._headers)
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CollectorFailed(_reason(error)) from None
        finally:
            connection.close()
        if response.status in _REJECTED:
            return Answer(spans, f"HTTP {response.status} {_sentence(response.reason)}".rstrip())
        if not 200 <= response.status < 300:
            wait_s = _seconds(response.getheader("Retry-After", ""))
            raise CollectorFailed(f"HTTP {response.status} {_sentence(response.reason)}".rstrip(), wait_s)
        return _partial(data, spans)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__} {_sentence(str(error))}".rstrip()


def _seconds(given: str) -> float:
    """Returns the seconds of a Retry-After, bounded; 0.0 without one, or with a date."""
    return min(float(given), WAIT_S_MAX) if given.isascii() and given.isdecimal() else 0.0


def _partial(data: bytes, spans: int) -> Answer:
    """Reads an ExportTraceServiceResponse; an answer that is none counts as success, as its status says."""
    try:
        found: Any = msgspec.json.decode(data, type=dict[str, Any]).get("partialSuccess") if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the spans were taken all the same
        return Answer()
    if not isinstance(found, dict):
        return Answer()
    try:
        rejected = min(max(int(found.get("rejectedSpans", 0)), 0), spans)
    except (TypeError, ValueError):
        rejected = 0
    return Answer(rejected, _sentence(str(found.get("errorMessage", ""))) if rejected else "")


def _sentence(text: str) -> str:
    return text[:_SENTENCE_CHARACTERS_MAX].strip()
