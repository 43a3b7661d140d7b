"""Whatever an author wrote, on the wire it has CRLF, doubled dots and an end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mailcore.config.live_maps import LiveMaps
from mailcore.control.injection import Injection, InjectionRefused, WireForm
from mailcore.control.local_filter import LocalFilter
from mailcore.control.protocol.injection import InjectBeginArguments
from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.faults import Code
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.queue.spool import DATA_AT, Spool
from mailcore.rewriting.address_map import AddressMap
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules, HeaderSection, Note
from mailcore.rewriting.rewriting import Maps, Rewritten, rewrite
from tests.lookup.sample_messages import NOW
from tests.milter.running import running_milter
from tests.milter.scripted import CONTINUE, DISCARD, REJECT, TEMPFAIL, framed, quarantine
from tests.pickup.test_filtering import filtering

ID = "1K0RDGV4BE900"


def formed(*pieces: bytes) -> bytes:
    form = WireForm()
    return b"".join([*map(form.feed, pieces), form.end()])


@pytest.mark.parametrize(
    ("written", "on_the_wire"),
    [
        (b"", b""),
        (b"a\nb\n", b"a\r\nb\r\n"),
        (b"a\r\nb", b"a\r\nb\r\n"),
        (b"a\rb\r", b"a\r\nb\r\n"),
        (b".a\n..\n.\n", b"..a\r\n...\r\n..\r\n"),
        (b"a.\nb.c\n", b"a.\r\nb.c\r\n"),
        (b"a\n.\nMAIL FROM:<x>\n", b"a\r\n..\r\nMAIL FROM:<x>\r\n"),
        (b"a\r\r\n.\r", b"a\r\n\r\n..\r\n"),
        (b"\xff\x00\n", b"\xff\x00\r\n"),
    ],
)
def test_line_ends_and_dots(written: bytes, on_the_wire: bytes) -> None:
    assert formed(written) == on_the_wire
    assert formed(*(written[at : at + 1] for at in range(len(written)))) == on_the_wire


def test_where_it_is_cut_makes_no_difference() -> None:
    chance = random.Random(5321)
    for _ in range(300):
        written = bytes(chance.choice(b"a.\r\n") for _ in range(chance.randrange(40)))
        cuts = sorted(chance.randrange(len(written) + 1) for _ in range(3))
        pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
        whole = formed(written)
        assert formed(*pieces) == whole
        assert b"\n." not in whole.replace(b"\n..", b"")
        assert whole.replace(b"\r\n", b"").translate(None, b"a.") == b""


def injection(
    directory: Path, rewriting: LiveMaps | None = None, local_filter: LocalFilter | None = None, **more: object
) -> Injection:
    given: dict[str, object] = {"sender": "me@example.org", "recipients": ["you@example.org"]}
    return Injection(
        Spool(Disk(), str(directory)),
        ID,
        InjectBeginArguments(**(given | more)),  # type: ignore[arg-type]
        hostname="mail.example.org",
        uid=1000,
        now=NOW,
        tag_header="X-Campaign",
        dropped=("bcc",),
        rewriting=rewriting,
        headers=rewriting,
        local_filter=local_filter,
        size_bytes_max=10_000,
        recipients_max=3,
    )


@pytest.mark.parametrize("rewrite", [True, False])
def test_a_dropped_field_does_not_leave_unless_another_mail_system_has_seen_it(tmp_path: Path, rewrite: bool) -> None:
    new = injection(tmp_path, rewrite=rewrite)
    new.write(b"A: 1\nBcc: secret@example.org\n b\nB")
    new.write(b"CC: secret@example.org")
    new.complete()
    assert (b"secret" in Path(Spool(Disk(), str(tmp_path)).path(ID)).read_bytes()) is not rewrite


def test_a_message_lies_complete_in_its_spool_file(tmp_path: Path) -> None:
    new = injection(tmp_path)
    new.write(b"From: me@example.org\nMessage-")
    new.write(b"ID:\n <abc@example.org>\n\n.dot\nlast \xe4")
    envelope = new.complete()
    spool = Spool(Disk(), str(tmp_path))
    stored, data_bytes = spool.read_envelope(ID)
    assert stored == msgspec.structs.replace(envelope, spool_bytes=0)
    data = Path(spool.path(ID)).read_bytes()
    assert envelope.spool_bytes == len(data)
    assert envelope.data_sums == sums_of(data[DATA_AT : DATA_AT + data_bytes])
    data = Path(spool.path(ID)).read_bytes()[DATA_AT : DATA_AT + data_bytes]
    assert data == (
        b"Received: by mail.example.org (Waypost, from uid 1000)\r\n"
        b"\tid 1K0RDGV4BE900; Wed, 18 Nov 2026 11:06:40 +0000\r\n"
        b"From: me@example.org\r\nMessage-ID:\r\n <abc@example.org>\r\n\r\n..dot\r\nlast \xe4\r\n"
    )
    assert (envelope.size_bytes, envelope.data, envelope.data_offset) == (len(data), DataPlace.SPOOL, DATA_AT)
    assert (envelope.origin, envelope.generation, envelope.arrived_at) == (Origin.LOCAL, 0, NOW)
    assert (envelope.message_id, envelope.eight_bit, envelope.smtputf8) == ("<abc@example.org>", True, False)
    assert [(each.number, each.address) for each in envelope.recipients] == [(0, "you@example.org")]


def test_a_message_id_in_the_body_is_none(tmp_path: Path) -> None:
    new = injection(tmp_path)
    new.write(b"Subject: x\n\nMessage-ID: <no@example.org>\n")
    assert new.complete().message_id == ""


def test_the_same_recipient_twice_is_one(tmp_path: Path) -> None:
    new = injection(tmp_path, recipients=["a@example.org", "b@example.org", "a@example.org"])
    new.write(b"x")
    envelope: Envelope = new.complete()
    assert [each.address for each in envelope.recipients] == ["a@example.org", "b@example.org"]
    assert envelope.recipient_count == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sender": "a b@example.org"}, "sender 'a b@example.org' is not an address"),
        ({"sender": "a>\r\nRCPT TO:<b@example.org"}, "is not an address"),
        ({"recipients": ["nobody"]}, "recipient 'nobody' is not an address"),
        ({"recipients": [""]}, "recipient '' is not an address"),
        ({"recipients": [f"u{n}@example.org" for n in range(4)]}, "4 recipients; allowed: 3"),
    ],
)
def test_bad_addresses_are_refused_before_there_is_a_file(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InjectionRefused, match=message.replace("(", r"\(")):
        injection(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_too_big_and_empty_messages_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    new = injection(tmp_path)
    with pytest.raises(InjectionRefused, match="too big; allowed: 10000 bytes"):
        new.write(b"x" * 10_000)
    new.abandon()
    new = injection(tmp_path)
    with pytest.raises(InjectionRefused, match="the message is empty"):
        new.complete()
    new.abandon()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_tag_is_the_value_of_the_named_field(tmp_path: Path) -> None:
    new = injection(tmp_path)
    new.write(b"Subject: x\nx-campaign:\n  spring sale\n\nX-Campaign: no\n")
    assert new.complete().tag == "spring sale"


class Rewriting:
    """Stands for ``LiveMaps``."""

    why = ""
    count = 2

    def header(self) -> HeaderSection | None:
        return None

    def apply(self, envelope: Envelope, more: Sequence[Recipient]) -> Rewritten:
        if self.why:
            return Rewritten(envelope, tuple(more), self.why)
        users = [f"u{number}" for number in range(self.count)]
        maps = Maps(aliases=[AddressMap({"team@example.org": tuple(f"{user}@example.org" for user in users)}, ())])
        return rewrite(maps, envelope, more)


def completed(directory: Path, rewriting: Rewriting, **more: Any) -> Envelope:
    given: dict[str, Any] = {"recipients": ["team@example.org"], **more}
    new = injection(directory / str(len(list(directory.iterdir()))), cast(LiveMaps, rewriting), **given)
    new.write(b"Subject: x\n\nx\n")
    return new.complete()


def test_an_alias_is_expanded_unless_its_mail_is_final(tmp_path: Path) -> None:
    envelope = completed(tmp_path, Rewriting())
    assert [each.address for each in envelope.recipients] == ["u0@example.org", "u1@example.org"]
    final = completed(tmp_path, Rewriting(), rewrite=False)
    assert [each.address for each in final.recipients] == ["team@example.org"]


def test_a_message_whose_recipients_are_not_known_is_refused(tmp_path: Path) -> None:
    rewriting = Rewriting()
    rewriting.why = "the pattern takes too long"
    with pytest.raises(InjectionRefused, match="cannot be determined: the pattern takes too long"):
        completed(tmp_path, rewriting)
    rewriting.why, rewriting.count = "", 1_000
    with pytest.raises(InjectionRefused, match="the aliases make 1001 recipients; allowed: 1000"):
        completed(tmp_path, rewriting, recipients=["team@example.org", "b@example.org"])


def test_milters_see_and_change_what_is_injected(tmp_path: Path) -> None:
    script = {"E": framed("h", b"X-Mark\0seen\0") + framed("+", b"<new@example.net>\0") + CONTINUE}
    with running_milter(script=script) as made:
        message = injection(tmp_path / "spool", local_filter=filtering(made, tmp_path))
        message.write(b"Subject: x\n\n.dot\n")
        envelope = message.complete()
        assert [each.address for each in envelope.recipients] == ["you@example.org", "new@example.net"]
        stored = Path(Spool(Disk(), str(tmp_path / "spool")).path(ID)).read_bytes()[DATA_AT:][: envelope.size_bytes]
        assert stored.endswith(b"X-Mark: seen\r\n\r\n..dot\r\n")
        assert (sums_of(stored), envelope.data) == (envelope.data_sums, DataPlace.SPOOL)
        assert made.body() == b".dot\r\n"


@pytest.mark.parametrize(
    ("script", "route", "held"),
    [
        ({"M": REJECT}, "error:5.7.1 Command rejected", ""),
        ({"R": REJECT}, "error:5.7.1 Command rejected", ""),
        ({"E": REJECT}, "error:5.7.1 Command rejected", ""),
        ({"E": DISCARD}, "discard:", ""),
        ({"E": quarantine(b"why") + CONTINUE}, "", "why"),
    ],
)
def test_what_milters_decide_about_what_is_injected(
    tmp_path: Path, script: dict[str, bytes], route: str, held: str
) -> None:
    with running_milter(script=script) as made:
        message = injection(tmp_path / "spool", local_filter=filtering(made, tmp_path))
        message.write(b"Subject: x\n\nx\n")
        envelope = message.complete()
        assert ([each.route for each in envelope.recipients], envelope.held_because) == ([route], held)


def test_what_a_milter_refuses_for_now_is_not_injected_and_leaves_nothing(tmp_path: Path) -> None:
    with running_milter(script={"E": TEMPFAIL}) as made:
        message = injection(tmp_path / "spool", local_filter=filtering(made, tmp_path))
        message.write(b"Subject: x\n\nx\n")
        with pytest.raises(InjectionRefused) as refused:
            message.complete()
        assert refused.value.fault.code is Code.BUSY
        message.abandon()
        assert [path for path in (tmp_path / "spool").rglob("*") if path.is_file()] == []


def test_mail_that_another_mail_system_has_filtered_passes_no_milter(tmp_path: Path) -> None:
    with running_milter(script={"E": REJECT}) as made:
        message = injection(tmp_path / "spool", local_filter=filtering(made, tmp_path), rewrite=False)
        message.write(b"Subject: x\n\nx\n")
        assert message.complete().recipients[0].route == ""
        assert made.connections == 0


def test_header_checks_of_what_is_injected_hide_no_field_from_milters_and_are_logged_as_the_author_wrote(
    tmp_path: Path,
) -> None:
    file = tmp_path / "checks"
    file.write_text("/^Received:/ IGNORE\n/^Subject:/ REDIRECT desk@example.net\n")
    rules = HeaderRules((read_checks(str(file)),))
    logged: list[str] = []

    class Checking(Rewriting):
        def header(self) -> HeaderSection | None:
            return HeaderSection(rules, None, lambda: 0.0)

        def checked(self, queue_id: str, client: str, sender: str, recipient: str, notes: Sequence[Note]) -> None:
            logged.append(recipient)

    with running_milter() as made:
        envelope = completed(tmp_path, Checking(), local_filter=filtering(made, tmp_path))
        assert [each.address for each in envelope.recipients] == ["desk@example.net"]
        assert [name for name, _ in made.headers()] == [b"Subject"]
        assert logged == ["team@example.org"]
