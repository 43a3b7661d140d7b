"""Pages and JSON are compressed for browsers that take gzip; streams and downloads are not."""

from __future__ import annotations

import gzip

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory

from appliance.common.compression import CompressionMiddleware

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
