"""The ledger after a kill at any byte, and the header of what nobody had cleaned."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.import_postfix.dropped import cleaned, qualified
from mailcore.import_postfix.ledger import Begun, Ledger, LedgerInUse
from mailcore.import_postfix.queue_file import QueuedMessage

KEY = "ABCDEF@1795287988.000001"
FIRST = Begun(KEY, 0, 9, "1K0SRE65WTRZY", 1795288216)
SECOND = Begun(KEY, 10, 10, "1K0SRE65XP1ZY", 1795288217)


def test_what_was_begun_is_open_until_it_is_done_or_void(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.begun(FIRST)
    ledger.begun(SECOND)
    ledger.done(FIRST)
    ledger.close()
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.open_ends() == [SECOND]
    assert [ledger.is_done(KEY, place) for place in (0, 9, 10)] == [True, True, False]
    ledger.void(SECOND)
    ledger.close()
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.open_ends() == []
    assert not ledger.is_done(KEY, 10)
    ledger.close()


def test_cut_off_anywhere_it_says_less_and_never_something_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    for entry in (FIRST, SECOND):
        ledger.begun(entry)
        ledger.done(entry)
    ledger.close()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        ledger = Ledger(path)
        lines = whole[:size].count(b"\n")
        assert ledger.open_ends() == {1: [FIRST], 3: [SECOND]}.get(lines, [])
        assert ledger.is_done(KEY, 5) is (lines >= 2)
        ledger.begun(SECOND)  # what comes then has a line of its own
        ledger.close()
        ledger = Ledger(path)
        assert SECOND in ledger.open_ends()
        ledger.close()


def test_two_imports_at_once_are_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(LedgerInUse, match="another import"):
        Ledger(tmp_path / "ledger")
    ledger.close()


@pytest.mark.parametrize(
    ("data", "is_left"),
    [
        (b"Subject: x\nBcc: a@b,\n c@d\nTo: e\n\nBcc: body\n", b"Subject: x\nTo: e\n"),
        (b"From: a\nDate: b\nMessage-ID: c\n\nx\n", b"From: a\nDate: b\nMessage-ID: c\n"),
        (b"no header\nat all\n", b""),
        (b"", b""),
        (b"Subject: no body", b"Subject: no body\n"),
        (b"\nx\n", b""),
    ],
)
def test_a_dropped_message_gets_the_header_that_cleanup_gives_it(data: bytes, is_left: bytes) -> None:
    message = QueuedMessage("maildrop", "ABCDEF", Path(), "root", arrived=(1795287988, 0))
    for size in (1, 7, 1000):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        made = b"".join(cleaned(message, pieces, "example.org", "mail.example.org"))
        header, _, body = made.partition(b"\n\n")
        assert (header + b"\n").startswith(is_left)
        for name in (b"from:", b"date:", b"message-id:"):
            assert header.lower().count(name) == 1
        assert b"bcc" not in header.lower()
        if b"From" not in data:
            assert b"From: root@example.org" in header
        expected = data.partition(b"\n\n")[2] if data.startswith((b"S", b"F")) else data.removeprefix(b"\n")
        assert body == expected


def test_addresses_without_a_domain_get_one_and_the_empty_sender_none() -> None:
    assert [qualified(each, "a.example") for each in ("root", "", "b@c")] == ["root@a.example", "", "b@c"]
