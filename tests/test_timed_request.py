"""The values of HOLDFOR, HOLDUNTIL and BY: what is accepted, what is kept, what a next hop gets."""

from __future__ import annotations

import pytest

from mailcore.config.esmtp import Esmtp
from mailcore.receiver.requests import Settled, settle
from mailcore.timed_request import (
    DeliverBy,
    deliver_by,
    is_too_late,
    owes_relayed,
    parse_by,
    parse_hold_for,
    parse_hold_until,
    stored_by,
    written_by,
)

NOW = 1_800_000_000.5
LIMITS = Esmtp(hold_max_s=1000, deliver_by_min_s=60)


@pytest.mark.parametrize("value", ["", "-1", "+1", "1.5", "1e3", "1234567890", "٣", "0x1"])
def test_a_wrong_hold_for_is_none(value: str) -> None:
    assert parse_hold_for(value) is None
    assert (parse_hold_for("0"), parse_hold_for("999999999")) == (0, 999_999_999)


@pytest.mark.parametrize(
    "value",
    ["", "2027-01-15", "2027-01-15T08:00:00", "2027-02-30T08:00:00Z", "0000-01-01T00:00:00Z", "2027-01-15 08:00:00Z",
     "2027-01-15T25:00:00Z", "２027-01-15T08:00:00Z", "2027-01-15T08:00:00+99:00"],
)  # fmt: skip
def test_a_wrong_hold_until_is_none(value: str) -> None:
    assert parse_hold_until(value) is None


def test_hold_until_is_a_time_of_rfc_3339() -> None:
    assert parse_hold_until("2027-01-15T08:00:00Z") == 1_800_000_000
    assert parse_hold_until("2027-01-15t08:00:00.5z") == NOW
    assert parse_hold_until("2027-01-15T10:00:00+02:00") == 1_800_000_000


@pytest.mark.parametrize(
    "value", ["", "60", "60;", ";R", "60;X", "60;RX", "0;R", "-5;R", "1234567890;N", "60;R;T", "6 0;N"]
)
def test_a_wrong_by_is_none(value: str) -> None:
    assert parse_by(value) is None


def test_by_is_kept_with_its_end_and_a_next_hop_gets_what_is_left() -> None:
    assert (parse_by("120;rt"), parse_by("-5;N"), parse_by("+0;NT")) == ((120, "RT"), (-5, "N"), (0, "NT"))
    stored = stored_by(120, "RT", NOW)
    assert deliver_by((("RET", "FULL"), ("BY", stored))) == DeliverBy(1_800_000_121, returns=True, traces=True)
    assert (written_by(stored, NOW + 20), written_by(stored_by(5, "N", NOW), NOW + 20)) == ("100;RT", "-15;N")
    assert deliver_by(()) is None


def test_only_what_is_to_be_returned_can_be_too_late() -> None:
    late = NOW + 200
    assert is_too_late((("BY", stored_by(120, "R", NOW)),), late)
    assert not is_too_late((("BY", stored_by(120, "R", NOW)),), NOW + 119)
    assert not is_too_late((("BY", stored_by(120, "N", NOW)),), late)
    assert not is_too_late((), late)


@pytest.mark.parametrize(
    ("mode", "offered", "owed"),
    [("R", True, False), ("N", True, False), ("N", False, True), ("RT", True, True), ("NT", True, True)],
)
def test_a_trace_and_a_server_without_deliverby_are_reported(mode: str, offered: bool, owed: bool) -> None:
    assert owes_relayed((("BY", stored_by(120, mode, NOW)),), offered) is owed
    assert not owes_relayed((), offered)


def test_what_follows_from_the_parameters() -> None:
    assert settle({"HOLDFOR": 10}, LIMITS, NOW, 9) == Settled(NOW + 11, ())
    assert settle({"HOLDFOR": 0}, LIMITS, NOW, 9) == Settled(0.0, ())
    assert settle({"HOLDUNTIL": NOW - 50}, LIMITS, NOW, 9) == Settled(0.0, ()), "a time in the past is at once"
    assert settle({"HOLDUNTIL": NOW + 1000}, LIMITS, NOW, 9) == Settled(NOW + 1001, ())
    assert settle({"BY": "60;R"}, LIMITS, NOW, 9) == Settled(0.0, (("BY", "1800000061;R"),))
    assert settle({"BY": "100;R", "HOLDFOR": 50}, LIMITS, NOW, 9) == Settled(NOW + 51, (("BY", "1800000101;R"),))
    assert settle({"BY": "5;N", "HOLDFOR": 50}, LIMITS, NOW, 9) == Settled(NOW + 51, (("BY", "1800000006;N"),))


@pytest.mark.parametrize(
    ("requests", "reply"),
    [({"HOLDFOR": 1, "HOLDUNTIL": NOW}, b"501 5.5.4"), ({"HOLDFOR": 1001}, b"501 5.5.4"),
     ({"HOLDUNTIL": NOW + 1001.0}, b"501 5.5.4"),
     ({"BY": "59;R"}, b"555 5.5.4"), ({"BY": "60;R", "HOLDFOR": 60}, b"501 5.5.4")],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(requests: dict[str, str | int | float], reply: bytes) -> None:
    found = settle(requests, LIMITS, NOW, 9)
    assert isinstance(found, bytes)
    assert found.startswith(reply)
