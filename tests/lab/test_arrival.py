"""The digest covers each byte that was sent and none that was added on the way."""

import hashlib

import pytest

from mailcore.lab.arrival import HEAD_BYTES_MAX, ContentDigest, content_digest

RECEIVED = b"Received: from a (b [192.0.2.1])\r\n\tby c with ESMTP id 1;\r\n Fri, 1 Jan 2027 00:00:00 +0000\r\n"
ID = b"X-Ledger-Id: 17\r\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        b"Subject: x\r\n\r\nbody\r\n",
        b"\r\nonly a body\r\n",
        b"",
        ID + RECEIVED + b"Subject: its own trace is content\r\n\r\nReceived: no field\r\n",
        b"Receive: no trace\r\n\r\n",
        b"Subject: x\r\n\r\nX-Ledger-Id: in the body\r\n",
        b"\r\nX-Ledger-Id: in a body without a header\r\n",
        b"Comment: X-Ledger-Id: in a line\r\n\r\n",
    ],
)
def test_trace_fields_in_front_do_not_count(content: bytes) -> None:
    assert content_digest(content) == sha(content)
    assert content_digest(RECEIVED + b"Return-Path: <a@b>\r\n" + RECEIVED + content) == sha(content)


def test_with_an_id_line_everything_above_it_was_added() -> None:
    assert content_digest(b"DKIM-Signature: x\r\n" + ID + b"\r\nbody\r\n") == sha(ID + b"\r\nbody\r\n")


def test_a_changed_byte_shows() -> None:
    assert content_digest(RECEIVED + b"Subject: x\r\n\r\nbody\r\n") != content_digest(b"Subject: x\r\n\r\nbodY\r\n")


@pytest.mark.parametrize("size", [1, 7, 1000, HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1])
def test_pieces_give_what_the_whole_gives(size: int) -> None:
    data = RECEIVED + ID + b"\r\n" + b"0123456789\r\n" * 20_000
    digest = ContentDigest()
    for at in range(0, min(len(data), 40 * size), size):
        digest.update(data[at : min(at + size, 40 * size)])
    part = data[: 40 * size]
    assert digest.size_bytes == len(part)
    assert digest.hexdigest() == content_digest(part)
    assert digest.id == ("17" if size > 1 else "")
