"""Bodies of hostile messages: they are shown in a moment, whatever is in their headers."""

from __future__ import annotations

import pytest

from appliance.queue.body import parsed

HEADERS = {
    "parameters": b"Content-Type: text/plain; " + b"; ".join(b"a%d=b" % number for number in range(100_000)),
    "continued": b"Content-Type: text/plain; " + b"; ".join(b"name*%d=b" % number for number in range(50_000)),
    "encoded": b'Content-Disposition: inline; filename="' + b"=?utf-8?q?a?= " * 100_000 + b'"',
    "folded": b"Content-Type: text/plain;" + b"\n a=b;" * 100_000,
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", HEADERS)
def test_an_endless_header_field_is_read_in_part(name: str) -> None:
    body = parsed(HEADERS[name] + b"\n\nHello.\n", cut=False)
    assert body.words == ""
    assert [part.text for part in body.texts] == ["Hello.\n"]


@pytest.mark.timeout(200)
def test_endlessly_many_parts_are_read_in_part() -> None:
    body = parsed(b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 200_000, cut=False)
    assert body.cut
    assert "more than" in body.words


def test_a_common_message_is_taken_apart() -> None:
    data = (
        b'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain\n\nHello.\n'
        b'--b\nContent-Type: image/png\nContent-Disposition: attachment; filename="a.png"\n\nx\n--b--\n'
    )
    body = parsed(data, cut=False)
    assert [(part.kind, part.name) for part in body.parts] == [("text/plain", ""), ("image/png", "a.png")]
