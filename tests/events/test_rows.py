"""The labels of an attempt: domains, source address, TLS and tag, from the record to the row and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import Status, Verdict
from mailcore.events.read.archive import EventArchive
from mailcore.events.rows import OF_THE_JOURNAL
from mailcore.events.schema import FIELDS
from mailcore.log.disk import Disk
from mailcore.log.record import RecordType
from mailcore.lookup.archive import Trouble, Window
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, decode_delivery, domain_of, domains_of, encode
from tests.events.lanes import DAY, Lanes

VERDICTS = tuple(Verdict(number, Status.DELIVERED, "2.0.0", "250 Ok") for number in range(2))


def delivery(*domains: str) -> Delivery:
    return Delivery(
        "0EXPR000000A0", 0, VERDICTS, DAY + 5, "mx[192.0.2.1]:25", "TLSv1.3 X", (0.0, 0.0, 0.1, 0.2), "smtp:example.net",
        "198.51.100.7", True, "sender.example", domains, "spring", 1_000,
        "verify: [tls_policy] one.example",
    )  # fmt: skip


def rows_of(body: bytes) -> list[dict[str, object]]:
    names = ("part", "at", "queue_id", *FIELDS["attempt"])
    return [dict(zip(names, row, strict=True)) for _, row in OF_THE_JOURNAL[RecordType.DELIVERY](body)]


@pytest.mark.parametrize(
    ("addresses", "domains"),
    [
        (["a@One.example"], ("one.example",)),
        (["a@one.example", "b@ONE.example"], ("one.example",)),
        (["a@one.example", "b@two.example"], ("one.example", "two.example")),
        ([], ()),
    ],
)
def test_one_domain_is_kept_once(addresses: list[str], domains: tuple[str, ...]) -> None:
    assert domains_of(addresses) == domains


def test_the_domain_of_no_address_is_empty() -> None:
    assert (domain_of(""), domain_of("postmaster"), domain_of("a@b@C.example")) == ("", "", "c.example")


@pytest.mark.parametrize("domains", [("one.example",), ("one.example", "two.example"), ()])
def test_a_row_carries_the_labels_of_its_attempt(domains: tuple[str, ...]) -> None:
    found = rows_of(encode(delivery(*domains)))
    wanted = {(): ["", ""], ("one.example",): ["one.example"] * 2}.get(domains, list(domains))
    assert [row["recipient_domain"] for row in found] == wanted
    for row in found:
        names = ("sender_domain", "source_address", "tls", "tls_verified", "tls_level", "tag")
        labels = {name: row[name] for name in names}
        assert labels == {
            "sender_domain": "sender.example", "source_address": "198.51.100.7", "tls": "TLSv1.3 X", "tls_verified": True,
            "tls_level": "verify: [tls_policy] one.example", "tag": "spring",
        }  # fmt: skip


def test_a_record_of_an_earlier_version_has_no_labels() -> None:
    old = msgspec.msgpack.encode(msgspec.msgpack.decode(encode(delivery()))[:8])
    assert decode_delivery(old).tag == ""
    (first, _) = rows_of(old)
    assert (first["destination"], first["recipient_domain"], first["tls_verified"]) == ("smtp:example.net", "", False)


@pytest.mark.parametrize("domains", [("one.example",), ("one.example", "two.example"), ()])
def test_events_give_back_the_record(tmp_path: Path, domains: tuple[str, ...]) -> None:
    lanes = Lanes(tmp_path)
    lanes.writer(JOURNAL).append(RecordType.DELIVERY, encode(delivery(*domains)))
    lanes.covered()
    lanes.run(everything=True)
    lanes.close()
    archive = EventArchive(Disk(), str(lanes.events))
    trouble = Trouble()
    steps = archive.bodies(["0EXPR000000A0"], 0, 1 << 40, Window(), trouble)
    assert [step[1] for step in steps if step is not None] == [delivery(*domains)]
    assert trouble.count == 0
