"""Milters see mail of local programs before it is queued; whatever they do or fail to do, no message is lost."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.milters import Milter
from mailcore.envelope import DataPlace, Envelope
from mailcore.log.data_blocks import sums_of
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER_BYTES, RecordType
from mailcore.pickup.filtering import Filtering
from mailcore.pickup.taking import Taking
from mailcore.queue.records import decode_envelope, inline_data_at
from mailcore.queue.spool import DATA_AT, Spool
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules
from tests.milter.running import running_milter
from tests.milter.scripted import (
    ACCEPT,
    CLOSE,
    CONTINUE,
    DISCARD,
    ENDLESS,
    REJECT,
    TEMPFAIL,
    ScriptedMilter,
    add_header,
    framed,
    quarantine,
    reply_code,
)
from tests.pickup.test_rewriting import Rewriting
from tests.pickup.test_taking import LANE, SETTINGS, TEXTS, home, names_in, read, start, submit
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

TEXT = b"Subject: small\n\nbody\n"
MARK = add_header("X-Mark", b"seen") + CONTINUE


def filtering(made: ScriptedMilter | str, log: Path, **more: Any) -> Filtering:
    address = made if isinstance(made, str) else made.address
    receiver = SETTINGS.receiver
    settings = replace(
        SETTINGS,
        receiver=replace(receiver, non_smtpd_milters=(address,), hostname="mx.example.org"),
        milter=(Milter(address=address, **more),),
        log_directory=log,
    )
    return Filtering(settings)


def taking_with(disk: SimulatedDisk, made: ScriptedMilter | str, log: Path, **more: Any) -> Taking:
    return start(disk, local_filter=filtering(made, log, **more))


def data_of(disk: SimulatedDisk, envelope: Envelope, end: int) -> bytes:
    if envelope.data is DataPlace.SPOOL:
        spool = Spool(disk, str(SETTINGS.spool_directory))
        data = disk.image(spool.path(envelope.queue_id))[DATA_AT:][: envelope.size_bytes]
    else:
        reader = LaneReader(disk, LANE, lambda damage: None)
        (body,) = [
            record.body
            for record in reader.records(0, end)
            if record.type == RecordType.ENVELOPE and decode_envelope(record.body).queue_id == envelope.queue_id
        ]
        data = bytes(body[inline_data_at(-HEADER_BYTES, body) :])
        reader.close()
    assert len(data) == envelope.size_bytes
    assert sums_of(data) == envelope.data_sums
    return data


def test_a_milter_sees_a_session_of_localhost(tmp_path: Path) -> None:
    with running_milter() as made:
        disk = home()
        submit(disk, b"Subject: x\n\n.dot\nbody\n", recipients=("b@example.net", "c@example.net"))
        taken = taking_with(disk, made, tmp_path).look()
        (envelope,) = taken.envelopes
        assert [packet for packet in made.seen if packet[0] in "CHMRT"] == [
            ("C", b"localhost\x004\x00\x00127.0.0.1\x00"),
            ("H", b"localhost\0"),
            ("M", b"<a@example.org>\0"),
            ("R", b"<b@example.net>\0"),
            ("R", b"<c@example.net>\0"),
            ("T", b""),
        ]
        assert made.body() == b".dot\r\nbody\r\n"
        assert [name for name, _ in made.headers()] == [b"Subject", b"Message-ID", b"Date", b"From"]
        assert made.macros["C"]["{daemon_name}"] == "mx.example.org"
        assert made.macros["C"]["_"] == "localhost [127.0.0.1]"
        assert made.macros["M"]["i"] == envelope.queue_id
        assert names_in(disk) == set()


@pytest.mark.parametrize("size", [1, 100])
def test_what_a_milter_changes_is_what_is_queued(tmp_path: Path, size: int) -> None:
    new = b"new body\n" * size
    script = {
        "E": framed("h", b"X-Mark\0seen\0")
        + framed("b", new)
        + framed("e", b"<other@example.org>\0")
        + framed("+", b"<new@example.net>\0")
        + framed("-", b"<b@example.net>\0")
        + CONTINUE
    }
    with running_milter(script=script) as made:
        for text in TEXTS:
            disk = home()
            submit(disk, text, recipients=("b@example.net", "c@example.net"))
            taken = taking_with(disk, made, tmp_path).look()
            (envelope,) = read(disk, taken.end)
            assert envelope.sender == "other@example.org"
            assert [each.address for each in envelope.recipients] == ["c@example.net", "new@example.net"]
            assert [each.number for each in envelope.recipients] == [0, 1]
            data = data_of(disk, envelope, taken.end)
            header, _, body = data.partition(b"\r\n\r\n")
            assert b"\r\nX-Mark: seen" in header
            assert body == new.replace(b"\n", b"\r\n")
            assert (envelope.data is DataPlace.SPOOL) == (len(data) > SETTINGS.queue.inline_limit)


@pytest.mark.parametrize("text", TEXTS)
def test_without_a_change_the_data_is_what_it_would_be_without_milters(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailcore.pickup.taking.BATCH_S", math.inf)  # the clock of the test ticks with each look
    with running_milter() as made:
        found = []
        for local_filter in (None, filtering(made, tmp_path)):
            disk = home()
            submit(disk, text, "0" * 32)
            end = start(disk, local_filter=local_filter).look().end
            (envelope,) = read(disk, end)
            found.append((envelope, data_of(disk, envelope, end)))
        assert found[0] == found[1]


@pytest.mark.parametrize("stage", ["C", "M", "R", "T", "L", "E"])
@pytest.mark.parametrize("text", TEXTS[:2])
def test_mail_that_a_milter_refuses_is_returned_to_its_sender(tmp_path: Path, stage: str, text: bytes) -> None:
    with running_milter(script={stage: reply_code(b"554 5.7.9 not this one")}) as made:
        disk = home()
        submit(disk, text, recipients=("b@example.net", "c@example.net"))
        taken = taking_with(disk, made, tmp_path).look()
        (envelope,) = read(disk, taken.end)
        assert [(each.address, each.route) for each in envelope.recipients] == [
            ("b@example.net", "error:5.7.9 not this one"),
            ("c@example.net", "error:5.7.9 not this one"),
        ]
        data_of(disk, envelope, taken.end)
        assert names_in(disk) == set()
    assert "milter-reject" in (tmp_path / "mail.log").read_text()


def test_one_recipient_that_a_milter_refuses_is_returned_and_the_others_get_the_message(tmp_path: Path) -> None:
    with running_milter(script={"R": [CONTINUE, REJECT, CONTINUE], "E": MARK}) as made:
        disk = home()
        submit(disk, TEXT, recipients=("b@example.net", "c@example.net", "d@example.net"))
        taken = taking_with(disk, made, tmp_path).look()
        (envelope,) = read(disk, taken.end)
        assert [(each.number, each.address, each.route) for each in envelope.recipients] == [
            (0, "b@example.net", ""),
            (1, "d@example.net", ""),
            (2, "c@example.net", "error:5.7.1 Command rejected"),
        ]
        assert envelope.recipient_count == 3
        assert b"X-Mark: seen" in data_of(disk, envelope, taken.end)


@pytest.mark.parametrize("stage", ["M", "R", "E"])
def test_mail_that_a_milter_discards_has_a_record_and_goes_nowhere(tmp_path: Path, stage: str) -> None:
    with running_milter(script={stage: DISCARD}) as made:
        disk = home()
        submit(disk, TEXT)
        taken = taking_with(disk, made, tmp_path).look()
        (envelope,) = read(disk, taken.end)
        assert [each.route for each in envelope.recipients] == ["discard:"]
        assert names_in(disk) == set()
    assert "milter-discard" in (tmp_path / "mail.log").read_text()


def test_a_message_without_recipients_is_discarded(tmp_path: Path) -> None:
    with running_milter(script={"E": framed("-", b"<b@example.net>\0") + CONTINUE}) as made:
        disk = home()
        submit(disk, TEXT)
        (envelope,) = read(disk, taking_with(disk, made, tmp_path).look().end)
        assert [(each.address, each.route) for each in envelope.recipients] == [("b@example.net", "discard:")]


def test_a_message_in_quarantine_is_held(tmp_path: Path) -> None:
    with running_milter(script={"E": quarantine(b"look at it") + ACCEPT}) as made:
        disk = home()
        submit(disk, TEXT)
        (envelope,) = read(disk, taking_with(disk, made, tmp_path).look().end)
        assert envelope.held_because == "look at it"
        assert envelope.recipients[0].route == ""


@pytest.mark.parametrize("stage", ["C", "H", "M", "R", "T", "L", "B", "E"])
def test_mail_that_is_refused_for_now_stays_in_the_maildrop_and_is_taken_later(tmp_path: Path, stage: str) -> None:
    with running_milter(script={stage: [TEMPFAIL, CONTINUE]}) as made:
        disk = home()
        name = submit(disk, TEXT)
        taking = taking_with(disk, made, tmp_path)
        taken = taking.look()
        assert [each[0] for each in taken.waiting] == [name]
        assert (names_in(disk), read(disk, taken.end)) == ({name}, [])
        assert "milter-tempfail" in (tmp_path / "mail.log").read_text()
        other = submit(disk, b"Subject: other\n\nx\n")
        taken = taking.look()
        assert [each.helo for each in taken.envelopes] == [f"maildrop/{other}"], "it keeps no other waiting"
        for _ in range(100):  # the clock of the test ticks with each look
            if taking.look().envelopes:
                break
        assert names_in(disk) == set()


@pytest.mark.parametrize("stage", ["C", "M", "R", "T", "L", "B", "E"])
def test_a_milter_that_fails_leaves_the_mail_in_the_maildrop(tmp_path: Path, stage: str) -> None:
    with running_milter(script={stage: CLOSE, "E": MARK} if stage != "E" else {"E": MARK[:-5] + CLOSE}) as made:
        disk = home()
        names = {submit(disk, text) for text in TEXTS}
        taken = taking_with(disk, made, tmp_path).look()
        assert len(taken.waiting) == 1, "the others would wait for it, too"
        assert names_in(disk) == names
        assert read(disk, taken.end) == []
    assert "default_action=tempfail" in (tmp_path / "mail.log").read_text()


@pytest.mark.parametrize(
    ("action", "route", "held"), [("accept", "", False), ("reject", "error:5.5.0", False), ("quarantine", "", True)]
)
def test_a_milter_that_is_gone_means_what_its_default_action_says(
    tmp_path: Path, action: str, route: str, held: bool
) -> None:
    disk = home()
    submit(disk, TEXTS[1])
    taken = taking_with(disk, "unix:/nonexistent/milter.sock", tmp_path, default_action=action).look()
    (envelope,) = read(disk, taken.end)
    assert envelope.recipients[0].route.startswith(route)
    assert bool(envelope.held_because) == held
    data_of(disk, envelope, taken.end)


def test_a_bug_leaves_the_mail_in_the_maildrop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with running_milter() as made:
        disk = home()
        name = submit(disk, TEXT)
        monkeypatch.setattr("mailcore.pickup.filtering._with_recipients", broken)
        taken = taking_with(disk, made, tmp_path).look()
        assert names_in(disk) == {name}
        assert taken.damaged == []
    assert "a bug" in (tmp_path / "mail.log").read_text()


@pytest.mark.parametrize("script", [{"E": MARK}, {"E": DISCARD}, {"M": REJECT}])
def test_each_message_is_there_once_wherever_the_power_goes(tmp_path: Path, script: dict[str, bytes]) -> None:
    with running_milter(script=script) as made:
        for cut in range(1, 40):
            disk = home()
            names = {submit(disk, text) for text in TEXTS}
            disk.crash_before(disk.changes + cut)
            over = False
            try:
                take_all(disk, made, tmp_path)
                over = True
            except PowerLoss:
                pass
            for seed in range(3):
                after = disk.kill() if seed == 0 else disk.crash(RandomChoice(seed))
                end = take_all(after, made, tmp_path)
                envelopes = read(after, end)
                assert Counter(each.helo.removeprefix("maildrop/") for each in envelopes) == Counter(names), (cut, seed)
                assert not names_in(after)
                for envelope in envelopes:
                    assert (b"X-Mark" in data_of(after, envelope, end)) == (script == {"E": MARK})
            if over:
                break
        assert over, "the cuts cover the whole history"


def take_all(disk: SimulatedDisk, made: ScriptedMilter, log: Path) -> int:
    taking = taking_with(disk, made, log)
    end = taking.recover()
    while (taken := taking.look()).envelopes:
        end = taken.end
        assert not {each.helo.removeprefix("maildrop/") for each in read(disk, end)} & names_in(disk)
    return end


def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.pickup.taking.BATCH_S", math.inf)
    with running_milter(script={"E": [TEMPFAIL, REJECT, MARK]}) as made:
        disk = home()
        for _ in range(3):
            submit(disk, TEXTS[1])
        taken = taking_with(disk, made, tmp_path).look()
        assert len(taken.envelopes) == 2
        assert [path for path in disk.open_files() if not path.startswith("/w/queue/")] == []
        assert len(files_in_spool(disk)) == 2


def files_in_spool(disk: SimulatedDisk) -> list[str]:
    spool = str(SETTINGS.spool_directory)
    return [name for shard in disk.list(spool) for name in disk.list(f"{spool}/{shard}")]


@pytest.mark.parametrize("stage", ["R", "E"])
def test_a_milter_that_asks_for_more_time_without_end_keeps_mail_waiting_only_for_its_time(
    tmp_path: Path, stage: str
) -> None:
    limits = {"command_timeout_s": 0.3, "content_timeout_s": 0.3, "message_timeout_s": 0.3}
    with running_milter(script={stage: [ENDLESS, CONTINUE]}) as made:
        disk = home()
        name = submit(disk, TEXT)
        other = submit(disk, TEXT)
        taking = taking_with(disk, made, tmp_path, **limits)
        assert taking.look().envelopes == []
        assert names_in(disk) == {name, other}
        assert "took more than 0.3 s for one message" in (tmp_path / "mail.log").read_text()
        taken = [envelope for _ in range(70) for envelope in taking.look().envelopes]
        assert len(taken) == 2


@pytest.mark.parametrize("check", ["IGNORE", "PREPEND X-Top: 1", "REPLACE Received: by us"])
def test_a_check_of_our_own_received_field_hides_no_field_of_the_author(tmp_path: Path, check: str) -> None:
    file = tmp_path / "checks"
    file.write_text(f"/^Received:/ {check}\n")
    with running_milter() as made:
        disk = home()
        submit(disk, TEXT)
        rewriting = Rewriting(HeaderRules((read_checks(str(file)),)))
        assert len(start(disk, rewriting, local_filter=filtering(made, tmp_path)).look().envelopes) == 1
        assert [name for name, _ in made.headers()] == [b"Subject", b"Message-ID", b"Date", b"From"]
