"""A message of the maildrop is in the queue once, wherever the power goes, and is never lost (law: taken-once)."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import Queue, Settings
from mailcore.control.local_filter import LocalFilter
from mailcore.envelope import DataPlace, Envelope
from mailcore.log.data_blocks import sums_of
from mailcore.log.lane import LaneFailed
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER_BYTES, RecordType
from mailcore.pickup.dropped import Draft, Submission, names_of
from mailcore.pickup.taking import Taking
from mailcore.pickup.verification import Verifier
from mailcore.queue.records import decode_envelope, inline_data_at
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

LANE = "/w/queue/incoming.1021"
MAILDROP = "/w/maildrop"
SETTINGS = Settings(
    home=Path("/w"),
    queue_directory=Path("/w/queue"),
    spool_directory=Path("/w/spool"),
    run_directory=Path("/w/run"),
    log_directory=Path("/w/log"),
    queue=Queue(inline_limit=400),
)
ALL_CUTS = 30  # calls that change the disk, and one more
TEXTS = (b"Subject: small\n\nbody\n", b"Subject: large\n\n" + b"0123456789\n" * 60, b"no header at all\n")


def submit(disk: SimulatedDisk, text: bytes, name: str = "", **more: object) -> str:
    draft = Draft(disk, MAILDROP, name)
    known = {"sender": "a@example.org", "recipients": ("b@example.net",), "submitted_at": 1_000.0, **more}
    draft.begin(Submission(**known))  # type: ignore[arg-type]
    draft.write(text)
    draft.submit()
    return draft.name


def home() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(MAILDROP)
    disk.make_directory("/w/queue")
    return disk


def start(
    disk: SimulatedDisk,
    rewriting: Any = None,
    local_filter: LocalFilter | None = None,
    verifier: Verifier | None = None,
    settings: Settings = SETTINGS,
) -> Taking:
    salts = iter(range(1, 1000))
    began = 2_000 + 100 * disk.changes  # the clock goes on after a power failure
    ticks = iter(range(began, began + 100_000))
    return Taking(
        disk, settings, hostname="mx.example.org", clock=lambda: float(next(ticks)), salt=lambda: next(salts),
        written=disk.modified, rewriting=rewriting, local_filter=local_filter,
        verifier=None if verifier is None else lambda: verifier,
    )  # fmt: skip


def read(disk: SimulatedDisk, end: int) -> list[Envelope]:
    reader = LaneReader(disk, LANE, lambda damage: None)  # of what was never synced
    records = [record for record in reader.records(0, end) if record.type == RecordType.ENVELOPE]
    reader.close()
    return [decode_envelope(record.body) for record in records]


def names_in(disk: SimulatedDisk) -> set[str]:
    return set(names_of(disk.list(MAILDROP)))


def take_all(disk: SimulatedDisk) -> int:
    """What a process does from its start to its first idle moment; returns what it reported last."""
    taking = start(disk)
    end = taking.recover()
    assert_not_readable_while_there(disk, end)
    while (taken := taking.look()).envelopes:
        end = taken.end
        assert_not_readable_while_there(disk, end)
    return end


def assert_not_readable_while_there(disk: SimulatedDisk, end: int) -> None:
    """What the manager may read has no file in the maildrop any more, neither now nor after a power failure."""
    readable = {envelope.helo.removeprefix("maildrop/") for envelope in read(disk, end)}
    assert not readable & names_in(disk)
    for seed in range(3):
        assert not readable & names_in(disk.crash(RandomChoice(seed)))


@pytest.mark.parametrize("cut", range(1, ALL_CUTS + 1))
def test_each_message_is_there_once_wherever_the_power_goes(cut: int) -> None:
    disk = home()
    names = {submit(disk, text) for text in TEXTS}
    disk.crash_before(disk.changes + cut)
    try:
        take_all(disk)
        over = True
    except PowerLoss:
        over = False
    for seed in range(12):
        after = disk.kill() if seed == 0 else disk.crash(RandomChoice(seed))
        end = take_all(after)
        found = Counter(envelope.helo.removeprefix("maildrop/") for envelope in read(after, end))
        assert found == Counter(names), (cut, seed)
        assert not names_in(after)
    assert over == (cut >= ALL_CUTS), "the cuts cover the whole history"


def test_a_second_power_failure_changes_nothing() -> None:
    for first in range(1, ALL_CUTS, 2):
        disk = home()
        names = {submit(disk, text) for text in TEXTS}
        disk.crash_before(disk.changes + first)
        with pytest.raises(PowerLoss):
            take_all(disk)
        for second in range(1, ALL_CUTS, 3):
            again = disk.crash(RandomChoice(first * 100 + second))
            again.crash_before(again.changes + second)
            with contextlib.suppress(PowerLoss):
                take_all(again)
            last = again.crash(RandomChoice(second))
            end = take_all(last)
            assert Counter(e.helo.removeprefix("maildrop/") for e in read(last, end)) == Counter(names), (first, second)


@pytest.mark.parametrize(
    ("call", "where"), [("sync", LANE), ("write", LANE), ("unlink", MAILDROP), ("sync", "/w/spool")]
)
def test_a_disk_that_fails_once_delays_and_neither_loses_nor_doubles(call: str, where: str) -> None:
    disk = home()
    names = {submit(disk, text) for text in TEXTS}
    taking = start(disk)
    taking.recover()
    disk.fail(call, in_path=where)
    with contextlib.suppress(LaneFailed, OSError):
        taking.look()
    end = taking.look().end
    assert Counter(e.helo.removeprefix("maildrop/") for e in read(disk, end)) == Counter(names)
    assert not names_in(disk)


def test_a_large_message_is_whole_in_its_spool_file_before_its_envelope_is_written() -> None:
    """law: data-before-replacement holds for it, too."""
    disk = home()
    submit(disk, TEXTS[1])
    taking = start(disk)
    taking.recover()
    before = len(disk.log)
    (envelope,) = taking.look().envelopes
    assert envelope.data is DataPlace.SPOOL
    calls = [
        (call, "spool" if "/spool/" in path else "lane")
        for call, path in disk.log[before:]
        if call == "sync" and not path.endswith("/ids.new")
    ]
    assert calls.index(("sync", "spool")) < calls.index(("sync", "lane"))


def test_a_part_of_a_file_is_never_a_message() -> None:
    """A program that is killed at any call while it submits leaves a whole message or none."""
    for cut in range(1, 12):
        disk = home()
        disk.crash_before(disk.changes + cut)
        try:
            submit(disk, TEXTS[1])
            told = True
        except PowerLoss:
            told = False
        for seed in range(8):
            after = disk.kill() if seed == 0 else disk.crash(RandomChoice(seed))
            taking = start(after)
            taking.recover()
            taken = taking.look()
            assert not taken.damaged, (cut, seed)
            assert len(taken.envelopes) == 1 if told else len(taken.envelopes) <= 1


def inline_data(disk: SimulatedDisk, end: int) -> list[bytes]:
    reader = LaneReader(disk, LANE, lambda damage: None)
    records = [record for record in reader.records(0, end) if record.type == RecordType.ENVELOPE]
    reader.close()
    return [record.body[inline_data_at(-HEADER_BYTES, record.body) :] for record in records]


def test_what_is_queued_is_the_message_as_on_the_wire_without_bcc() -> None:
    disk = home()
    submit(disk, b"Bcc: secret@example.org\nSubject: x\n\nbody\n.\n.x\nno end", user="ann", full_name="Ann")
    taking = start(disk)
    taking.recover()
    (envelope,) = taking.look().envelopes
    (data,) = inline_data(disk, taking.look().end)
    trace, _, rest = data.partition(b"Subject: ")
    assert trace.startswith(
        b"Received: by mx.example.org (Waypost, from uid 1000)\r\n\tid " + envelope.queue_id.encode()
    )
    assert rest.startswith(b"x\r\nMessage-ID: <19700101001640." + envelope.queue_id.encode() + b"@mx.example.org>\r\n")
    assert rest.endswith(b"\r\nFrom: Ann <a@example.org>\r\n\r\nbody\r\n..\r\n..x\r\nno end\r\n")
    assert b"secret" not in data
    assert (envelope.sender, envelope.login, envelope.size_bytes) == ("a@example.org", "ann", len(data))
    assert envelope.data_sums == sums_of(data)
    assert envelope.message_id.startswith("<19700101001640.")


def test_thousands_of_recipients_are_one_message() -> None:
    disk = home()
    submit(disk, TEXTS[0], recipients=tuple(f"r{number}@example.net" for number in range(2_500)))
    taking = start(disk)
    taking.recover()
    (envelope,) = taking.look().envelopes
    assert (envelope.recipient_count, len(envelope.recipients), len(envelope.batches)) == (2_500, 1_000, 2)


@pytest.mark.parametrize(
    "content",
    [b"", b"WAYDROP1", b"x" * 100, b"WAYDROP1" + bytes(24), b"WAYDROP1" + b"\xff" * 60],
    ids=["empty", "short", "foreign", "zeros", "huge"],
)
def test_a_damaged_file_is_set_aside_once_and_stops_nothing(content: bytes) -> None:
    disk = home()
    name = "0" * 32
    disk.put(f"{MAILDROP}/{name}", content)
    submit(disk, TEXTS[0])
    taking = start(disk)
    taking.recover()
    taken = taking.look()
    assert [path for path, _ in taken.damaged] == [f"{MAILDROP}/damaged.{name}"]
    assert len(taken.envelopes) == 1
    assert disk.image(f"{MAILDROP}/damaged.{name}") == content
    assert not taking.look().damaged


def test_every_byte_of_a_message_is_covered_by_a_checksum() -> None:
    disk = home()
    name = submit(disk, TEXTS[0])
    size = len(disk.image(f"{MAILDROP}/{name}"))
    for at in range(0, size, 3):
        other = disk.kill()
        before = other.image(f"{MAILDROP}/{name}")[at]
        other.damage(f"{MAILDROP}/{name}", at, bytes([before ^ 0x20]))
        taking = start(other)
        taking.recover()
        taken = taking.look()
        assert (len(taken.envelopes), len(taken.damaged)) == (0, 1), at


@pytest.mark.parametrize("more", [{"sender": "a b"}, {"recipients": ("no address",)}, {"recipients": ()}])
def test_an_envelope_that_no_next_hop_may_see_is_set_aside(more: dict[str, object]) -> None:
    disk = home()
    submit(disk, TEXTS[0], **more)  # type: ignore[arg-type]
    taking = start(disk)
    taking.recover()
    taken = taking.look()
    assert (len(taken.envelopes), len(taken.damaged)) == (0, 1)


def test_a_name_that_is_used_again_is_another_message() -> None:
    """A user chooses the names: they must not decide which message of the queue is meant."""
    disk = home()
    taking = start(disk)
    taking.recover()
    found = []
    for _ in range(2):
        submit(disk, TEXTS[1], name="a" * 32)
        found += taking.look().envelopes
    assert len({envelope.queue_id for envelope in found}) == 2


def test_a_full_disk_leaves_mail_in_the_maildrop() -> None:
    disk = home()
    submit(disk, TEXTS[0])
    taking = start(disk)
    taking.recover()
    disk.capacity = disk.used() + 1000
    assert taking.look().is_full
    assert names_in(disk)
    disk.capacity = None
    assert len(taking.look().envelopes) == 1


def test_only_old_parts_of_messages_are_removed() -> None:
    disk = home()
    for name, written in (("a" * 32, 0.0), ("b" * 32, 1e12)):
        disk.wall = lambda written=written: written  # type: ignore[misc]
        Draft(disk, MAILDROP, name)
    taking = Taking(disk, SETTINGS, hostname="h", clock=lambda: 1e6, salt=lambda: 1, written=disk.modified)
    assert taking.remove_unfinished() == 1
    assert disk.list(MAILDROP) == ["." + "b" * 32]


@pytest.mark.parametrize("said", [True, False])
def test_smtputf8_comes_along_though_all_addresses_are_ascii(said: bool) -> None:
    disk = home()
    submit(disk, TEXTS[0], smtputf8=said)
    (envelope,) = start(disk).look().envelopes
    assert envelope.smtputf8 is said
