"""What is in the bodies of the records, and that older and newer ones are understood."""

from __future__ import annotations

import struct

import msgspec
import pytest

from mailcore.envelope import DataPlace, Envelope, Recipient, Status, Verdict
from mailcore.log.index import queue_id_in
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER_BYTES
from mailcore.queue.records import (
    Administrative,
    Delivery,
    Finish,
    Place,
    Refused,
    Replaced,
    Start,
    append_envelope,
    append_recipients,
    decode_administrative,
    decode_delivery,
    decode_envelope,
    decode_finish,
    decode_recipients,
    decode_refused,
    decode_replaced,
    decode_start,
    encode,
    inline_data_at,
)
from tests.log.lanes import DIRECTORY, open_writer
from tests.simulated_disk import SimulatedDisk

VERDICT = Verdict(3, Status.DEFERRED, "4.0.0", "come again")


def envelope(data: bytes = b"", place: DataPlace = DataPlace.INLINE) -> Envelope:
    return Envelope(
        queue_id="0GABCDEFGHJKM",
        generation=2,
        sender="s@example.net",
        recipients=(Recipient(0, "ü@example.org", "smtp:example.org", "", "451 later"),),
        recipient_count=1,
        arrived_at=1.5,
        size_bytes=len(data),
        data=place,
    )


@pytest.mark.parametrize(
    ("body", "decode"),
    [
        (Start("Q", 1, Place("incoming.0", 7), 2, 5, {"smtp:a": 2}, (1,), (VERDICT,)), decode_start),
        (
            Delivery("Q", 1, (VERDICT,), 1.5, "mx[1.2.3.4]:25", "TLSv1.3", (1.0, 2.0, 3.0, 4.0), "smtp:a"),
            decode_delivery,
        ),
        (Replaced("Q", 1, Place("retry.300", 7), Place("local", 9), 1.5), decode_replaced),
        (Finish("Q", 1, None, 1.5, "deleted"), decode_finish),
        (Administrative("delay", "Q", "root", "because", 1.5, {"until": 5.0}), decode_administrative),
        (Refused(1.5, "RCPT", "550 5.7.1 no", "::1", "me", "s@a", "r@b"), decode_refused),
    ],
)
def test_a_body_is_read_back_and_fields_of_tomorrow_are_passed_over(body: msgspec.Struct, decode: object) -> None:
    assert callable(decode)
    encoded = encode(body)  # type: ignore[arg-type]
    assert decode(encoded) == body
    fields = msgspec.msgpack.decode(encoded)
    assert decode(msgspec.msgpack.encode([*fields, "a field", {"of": "tomorrow"}])) == body


def test_bodies_of_yesterday_have_the_defaults() -> None:
    assert decode_finish(msgspec.msgpack.encode(["Q", 1])) == Finish("Q", 1)
    assert decode_start(msgspec.msgpack.encode(["Q", 1, ["incoming.0", 7], 2])) == Start(
        "Q", 1, Place("incoming.0", 7), 2
    )


def stored(writer: LaneWriter, disk: SimulatedDisk, offset: int) -> bytes:
    writer.sync()
    record = LaneReader(disk, DIRECTORY, print).read(offset)
    assert record is not None
    return record.body


def test_an_envelope_from_before_there_were_options_has_none_and_one_with_options_is_read_by_that_version() -> None:
    options = (("X-TEST", "1"), ("X-FLAG", ""))
    sent = Envelope(
        queue_id="Q", generation=0, sender="a@example.org", recipients=(Recipient(0, "b@example.org", options=options),),
        recipient_count=1, arrived_at=1.0, size_bytes=5, data=DataPlace.INLINE, options=options,
    )  # fmt: skip
    fields = msgspec.to_builtins(sent, builtin_types=(bytes,))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Envelope)
    assert (read.options, read.recipients[0].options) == (options, options)
    of_envelope, of_recipient = (kind.__struct_fields__.index("options") for kind in (Envelope, Recipient))
    before = [*fields[:3], [fields[3][0][:of_recipient]], *fields[4:of_envelope]]
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=Envelope)
    assert (read.options, read.recipients[0].options) == ((), ())


@pytest.mark.parametrize("data", [b"", b"x", b"Subject: x\r\n\r\n" + bytes(range(256)) * 20])
def test_inline_data_lies_where_it_is_said_to(data: bytes) -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    offset = append_envelope(writer, envelope(data), data)
    body = stored(writer, disk, offset)
    assert decode_envelope(body) == envelope(data)
    assert queue_id_in(body) == b"0GABCDEFGHJKM"
    at = inline_data_at(offset, body)
    assert body[at - offset - HEADER_BYTES :] == data
    assert disk.image(f"{DIRECTORY}/{0:020d}.seg")[at : at + len(data)] == data


def test_an_envelope_whose_data_is_in_the_spool_has_none() -> None:
    writer = open_writer(SimulatedDisk())
    with pytest.raises(AssertionError):
        append_envelope(writer, envelope(b"data", DataPlace.SPOOL), b"data")
    with pytest.raises(AssertionError):
        append_envelope(writer, envelope(b"data"))
    append_envelope(writer, envelope(b"data", DataPlace.SPOOL))


def test_recipients_are_read_back_and_a_batch_is_bounded() -> None:
    disk = SimulatedDisk()
    writer = open_writer(disk)
    many = [Recipient(n, f"r{n}@example.org") for n in range(1000)]
    assert decode_recipients(stored(writer, disk, append_recipients(writer, many))) == tuple(many)
    for wrong in ([], [*many, many[0]]):
        with pytest.raises(AssertionError):
            append_recipients(writer, wrong)


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff\xff\xff\xff", b"\4\0\0\0abcd", b"\1\0\0\0\xc0", b"\0\0\0\0"])
def test_what_is_no_envelope_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, struct.error)):
        decode_envelope(body)
