"""Aliases and canonical addresses apply to mail of local programs as to mail of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mailcore.envelope import Envelope, Recipient
from mailcore.rewriting.address_map import AddressMap
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules, HeaderSection
from mailcore.rewriting.rewriting import Maps, Rewritten, rewrite
from tests.pickup.test_taking import home, names_in, read, start, submit

TEXT = b"Subject: x\n\nbody\n"
MAPS = Maps(
    sender_canonical=[AddressMap({"a@example.org": ("author@example.org",)}, ())],
    aliases=[
        AddressMap(
            {
                "team@example.net": ("kim@example.net", "robin@example.net"),
                "all@example.net": tuple(f"u{i}@example.net" for i in range(999)),
                "more@example.net": tuple(f"m{i}@example.net" for i in range(999)),
            },
            (),
        )
    ],
)


class Rewriting:
    """Stands for ``LiveMaps``."""

    def __init__(self, rules: HeaderRules | None = None) -> None:
        self.wrong = ""  # a recipient that cannot be determined
        self.rules = rules

    def header(self) -> HeaderSection | None:
        return None if self.rules is None else HeaderSection(self.rules, self.rules.rewriter, lambda: 0.0)

    def apply(self, envelope: Envelope, more: Sequence[Recipient]) -> Rewritten:
        if any(recipient.address == self.wrong for recipient in envelope.recipients):
            return Rewritten(envelope, tuple(more), "the pattern takes too long")
        return rewrite(MAPS, envelope, more)


def test_aliases_are_expanded_before_a_message_is_queued() -> None:
    disk = home()
    submit(disk, TEXT, recipients=("team@example.net", "b@example.net"))
    taking = start(disk, Rewriting())
    (envelope,) = read(disk, taking.look().end)
    assert [each.address for each in envelope.recipients] == ["kim@example.net", "robin@example.net", "b@example.net"]
    assert envelope.recipient_count == 3
    assert envelope.sender == "author@example.org"
    assert envelope.recipients[0].options == (("ORCPT", "rfc822;team@example.net"),)


def test_an_expansion_beyond_one_record_is_complete() -> None:
    disk = home()
    submit(disk, TEXT, recipients=("all@example.net", "more@example.net", "b@example.net"))
    taking = start(disk, Rewriting())
    (envelope,) = read(disk, taking.look().end)
    assert envelope.recipient_count == 1_999
    assert len(envelope.recipients) == 1_000
    assert len(envelope.batches) == 1


def test_a_message_whose_recipients_are_not_known_waits_and_keeps_no_other_waiting() -> None:
    disk = home()
    rewriting = Rewriting()
    rewriting.wrong = "slow@example.net"
    wrong = submit(disk, TEXT, recipients=("slow@example.net",))
    taking = start(disk, rewriting)
    taken = taking.look()
    assert taken.put_off == [(wrong, "the pattern takes too long")]
    assert names_in(disk) == {wrong}
    submit(disk, TEXT)
    taken = taking.look()
    assert taken.put_off == []  # it is not looked at again at once
    assert [each.address for each in taken.envelopes[0].recipients] == ["b@example.net"]
    rewriting.wrong = ""
    for _ in range(100):  # the clock of the test ticks with each look
        taken = taking.look()
        if taken.envelopes:
            break
    assert [each.address for each in taken.envelopes[0].recipients] == ["slow@example.net"]
    assert names_in(disk) == set()


def test_header_checks_hold_return_and_discard_mail_of_local_programs(tmp_path: Path) -> None:
    file = tmp_path / "checks"
    file.write_text(
        "/^Subject: hold/ HOLD look at it\n/^Subject: no/ REJECT not here\n/^Subject: away/ DISCARD\n"
        "/^Subject: other/ REDIRECT desk@example.net\n/^Subject: mark/ PREPEND X-Mark: yes\n/^Received:/ IGNORE\n"
    )
    rules = HeaderRules((read_checks(str(file)),))
    disk = home()
    for subject in (b"hold", b"no", b"away", b"other", b"mark"):
        submit(disk, b"Subject: " + subject + b"\n\nx\n", recipients=("team@example.net",))
    taking = start(disk, Rewriting(rules))
    taken = taking.look()
    by_id = {each.queue_id: each for each in taken.envelopes}
    found = {each.notes[0].field: by_id[each.queue_id] for each in taken.checks}
    # What the log has is what the author used, before aliases, canonical addresses and REDIRECT.
    assert {(each.sender, each.recipient) for each in taken.checks} == {("a@example.org", "team@example.net")}
    assert found["Subject: hold"].held_because == "look at it"
    assert [each.route for each in found["Subject: no"].recipients] == ["error:5.7.1 not here"]
    assert [each.route for each in found["Subject: away"].recipients] == ["discard:"]
    assert [each.address for each in found["Subject: other"].recipients] == ["desk@example.net"]
    assert len(read(disk, taken.end)) == 5
    assert names_in(disk) == set()


def test_a_header_whose_checks_do_not_end_leaves_the_message_in_the_maildrop(tmp_path: Path) -> None:
    file = tmp_path / "checks"
    file.write_text("/^Subject: ((a|aa)+)+$/ REJECT\n")
    disk = home()
    name = submit(disk, b"Subject: " + b"a" * 200 + b"!\n\nx\n")
    taken = start(disk, Rewriting(HeaderRules((read_checks(str(file)),)))).look()
    assert [each[0] for each in taken.put_off] == [name]
    assert names_in(disk) == {name}
