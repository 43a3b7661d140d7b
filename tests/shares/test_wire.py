"""The messages of shards and giver survive their way as bytes, however these are cut."""

from __future__ import annotations

import pytest

from mailcore.shares.messages import NEVER, Answer, Ask, Dead, Term, Welcome, Wish
from mailcore.shares.wire import BadMessage, MessageDecoder, encoded

MESSAGES: list[Ask | Answer | Welcome] = [
    Ask("A.1", 2, 3, NEVER, True, {"d": Wish(3, 2, 1)}, {"d": Dead(2.5, "refused")}, ("e",)),
    Answer(Term(2, 3), {"d": 4}, ("d",), {"e": Dead(1.5, "äh")}),
    Welcome(7),
]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_messages_come_as_they_were_sent(step: int) -> None:
    decoder = MessageDecoder()
    data = b"".join(encoded(each) for each in MESSAGES)
    found = [each for at in range(0, len(data), step) for each in decoder.feed(data[at : at + step])]
    assert found == MESSAGES


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\x02\0\0\0\x91\x09"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        list(MessageDecoder().feed(data))
