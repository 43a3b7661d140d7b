"""Pages, JSON and the events of live pages are compressed for browsers that take gzip; downloads are not."""

from __future__ import annotations

import gzip
import zlib

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory

from appliance.common.compression import STREAM_BEGIN, CompressionMiddleware, compressed_event, takes_gzip

BODY = b"the same words again and again " * 100


def answered(response: HttpResponseBase, accepts: str = "gzip, br") -> HttpResponseBase:
    request = RequestFactory().get("/", headers={"accept-encoding": accepts})
    return CompressionMiddleware(lambda _: response)(request)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json"])
def test_a_page_and_json_are_compressed(kind: str) -> None:
    response = answered(HttpResponse(BODY, content_type=kind))
    assert response["Content-Encoding"] == "gzip"
    assert response["Vary"] == "Accept-Encoding"
    assert isinstance(response, HttpResponse)
    assert gzip.decompress(response.content) == BODY
    assert len(response.content) < len(BODY) / 5


@pytest.mark.parametrize(
    ("response", "accepts"),
    [
        (StreamingHttpResponse([BODY], content_type="text/event-stream"), "gzip"),
        (StreamingHttpResponse([BODY], content_type="text/html"), "gzip"),
        (HttpResponse(BODY, content_type="message/rfc822"), "gzip"),
        (HttpResponse(BODY, content_type="text/html"), "identity"),
    ],
    ids=["events", "a streamed page", "a message", "another browser"],
)
def test_all_else_goes_as_it_is(response: HttpResponseBase, accepts: str) -> None:
    assert "Content-Encoding" not in answered(response, accepts)


@pytest.mark.django_db
def test_the_portal_compresses() -> None:
    response = Client().get("/accounts/login/", headers={"accept-encoding": "gzip"})
    assert response["Content-Encoding"] == "gzip"
    assert b"<!doctype html>" in gzip.decompress(response.content)


@pytest.mark.parametrize(
    ("accepts", "takes"),
    [
        ("gzip, deflate, br", True),
        ("br, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0", False),
        ("br", False),
        ("", False),
    ],
)
def test_a_browser_says_whether_it_takes_gzip(accepts: str, takes: bool) -> None:
    assert takes_gzip(RequestFactory().get("/", headers={"accept-encoding": accepts})) is takes


def test_events_can_be_read_one_by_one_in_any_order() -> None:
    events = [b"data: %d\n\n" % number + BODY for number in range(3)]
    for order in ((0, 1, 2), (2, 0), (1, 1)):
        reader = zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)
        assert reader.decompress(STREAM_BEGIN) == b""
        for number in order:  # each is there whole before the next comes
            assert reader.decompress(compressed_event(events[number])) == events[number]
