"""What a filter on the control socket selects, and which values it refuses: an empty value never means all mail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import Refused
from mailcore.faults import Code
from tests.control.running_control import RunningControl
from tests.faults import refused
from tests.lookup.sample_messages import deferred, envelope

BLANK = ("", " ", "\t", "\u3000")
TEXTS = ("sender", "recipient", "destination", "lane", "reason")
NUMBERS = ("older_than_s", "younger_than_s", "larger_than_bytes", "smaller_than_bytes", "arrived_before")


def queue(running: RunningControl) -> None:
    running.write("incoming.0", envelope("anna@example.org", sender="author@example.org"))
    running.write("incoming.0", envelope("bert@example.net", sender=""))
    running.write("retry.5", deferred("carl@example.net", sender="author@example.net"))


async def senders(control: AsyncControlClient, **filter_: Any) -> list[str]:
    return [item["sender"] for item in (await control.call("list", {"filter": filter_}))["items"]]


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", [*BLANK, "a\0b", "\0", "a\nb", None])
async def test_a_text_without_a_value_is_refused_and_changes_nothing(
    running: RunningControl, control: AsyncControlClient, field: str, value: str | None
) -> None:
    queue(running)
    for more in ({}, {"dry_run": True}):
        with refused(Code.INVALID, f"filter.{field}"):
            await control.call("change_matching", {"change": "delete", "filter": {field: value}, **more})
    with refused(Code.INVALID, f"filter.{field}"):
        await control.call("list", {"filter": {field: value}})
    assert running.manager.asked("delete") == []


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, None, 1 << 63])
async def test_a_number_that_limits_nothing_is_refused(control: AsyncControlClient, field: str, value: float) -> None:
    for operation, arguments in (("list", {}), ("change_matching", {"change": "delete"})):
        with refused(Code.INVALID, f"filter.{field}"):
            await control.call(operation, {**arguments, "filter": {field: value}})


@pytest.mark.parametrize("field", ["message_id", "sender", "recipient"])
@pytest.mark.parametrize("value", [*BLANK, "\0", None, "a\\"])
async def test_a_search_refuses_them_too(control: AsyncControlClient, field: str, value: str | None) -> None:
    with refused(Code.INVALID, field):
        await control.call("search", {field: value})


async def test_a_search_refuses_an_empty_message_id_and_an_empty_queue_id(control: AsyncControlClient) -> None:
    with refused(Code.INVALID, "message_id"):
        await control.call("search", {"message_id": "<>"})
    with refused(Code.INVALID, "queue_id"):
        await control.call("search", {"queue_id": ""})


@pytest.mark.parametrize("argument", ["cut", "route"])
async def test_an_empty_limit_of_a_change_is_refused(control: AsyncControlClient, argument: str) -> None:
    with refused(Code.INVALID, argument):
        await control.call("change_matching", {"change": "delete", "filter": {}, argument: ""})


async def test_a_filter_that_is_not_given_limits_nothing(running: RunningControl, control: AsyncControlClient) -> None:
    queue(running)
    assert len(await senders(control)) == 3


async def test_the_empty_sender_is_written_with_brackets(running: RunningControl, control: AsyncControlClient) -> None:
    queue(running)
    assert await senders(control, sender="<>") == [""]
    found = await control.call("search", {"sender": "<>"})
    assert [each["sender"] for each in found["items"]] == [""]


async def test_a_star_alone_matches_all_and_the_empty_sender_has_no_domain(
    running: RunningControl, control: AsyncControlClient
) -> None:
    queue(running)
    assert await senders(control, sender="*") == ["author@example.org", "", "author@example.net"]
    assert await senders(control, sender="*@*") == ["author@example.org", "author@example.net"]


@pytest.mark.parametrize("lane", ["retry.7", "incoming", "retrys.*", "retry.5\\*", "journal"])
async def test_an_unknown_lane_is_refused_with_the_lanes_there_are(
    running: RunningControl, control: AsyncControlClient, lane: str
) -> None:
    queue(running)
    for operation, arguments in (("list", {}), ("change_matching", {"change": "delete", "dry_run": True})):
        with pytest.raises(
            Refused, match=r"incoming\.0, local, retry\.0, retry\.1, retry\.5, .*, hold, deleted"
        ) as caught:
            await control.call(operation, {**arguments, "filter": {"lane": lane}})
        assert (caught.value.code, caught.value.argument) == (Code.INVALID, "filter.lane")


@pytest.mark.parametrize("lane", ["hold", "deleted", "local", "HOLD", "retry.30", "retry.*", "incoming.?", "*"])
async def test_a_lane_of_the_settings_may_be_empty(
    running: RunningControl, control: AsyncControlClient, lane: str
) -> None:
    queue(running)
    await control.call("list", {"filter": {"lane": lane}})


async def test_a_lane_is_known_without_the_manager(running: RunningControl, control: AsyncControlClient) -> None:
    queue(running)
    await running.lose_the_manager()
    assert await senders(control, lane="retry.5") == ["author@example.net"]
    with refused(Code.INVALID, "filter.lane"):
        await control.call("list", {"filter": {"lane": "retry.7"}})


@pytest.mark.parametrize("pattern", ["a\\", "a\\b@example.org", "\\", "*\\"])
@pytest.mark.parametrize("field", ["sender", "recipient", "destination", "lane"])
async def test_a_backslash_must_have_something_to_escape(control: AsyncControlClient, field: str, pattern: str) -> None:
    with refused(Code.INVALID, f"filter.{field}"):
        await control.call("list", {"filter": {field: pattern}})


@pytest.mark.parametrize("address", ["<a@example.org>", "<*>"])
async def test_an_address_is_written_without_brackets(control: AsyncControlClient, address: str) -> None:
    for field in ("sender", "recipient"):
        with refused(Code.INVALID, f"filter.{field}"):
            await control.call("list", {"filter": {field: address}})
    with refused(Code.INVALID, "filter.recipient"):
        await control.call("list", {"filter": {"recipient": "<>"}})


async def test_addresses_compare_exactly(running: RunningControl, control: AsyncControlClient) -> None:
    """Changes, lists and searches by the same rule: A-labels and ASCII case, nothing else."""
    sharp, plain, kelvin, star = (
        "stra\u00dfe@example.org",
        "strasse@example.org",
        "\u212aim@example.org",
        "a*b@example.org",
    )
    wide, narrow = "anna@B\u00dcCHER.example", "anna@xn--bcher-kva.example"
    for address in (sharp, plain, kelvin, "kim@example.org", star, "axb@example.org", wide, narrow):
        running.write("incoming.0", envelope("x@example.com", sender=address))
        running.write("incoming.0", envelope(address, sender="recipient@example.com"))

    async def both(pattern: str) -> list[str]:
        by_sender = await senders(control, sender=pattern)
        listed = (await control.call("list", {"filter": {"recipient": pattern}}))["items"]
        assert [item["recipients"][0] for item in listed] == by_sender
        for field in ("sender", "recipient"):
            hits = (await control.call("search", {field: pattern}))["items"]
            assert len(hits) == len(by_sender)
        counted = {"change": "delete", "dry_run": True, "filter": {"recipient": pattern}}
        assert (await control.call("change_matching", counted))["matched"] == len(by_sender)
        return by_sender

    assert await both("STRASSE@example.ORG") == [plain]
    assert await both("stra\u00dfe@EXAMPLE.org") == [sharp]
    assert await both("KIM@example.org") == ["kim@example.org"]
    assert await both("\u212aim@example.org") == [kelvin]
    assert await both("a\\*b@example.org") == [star]
    assert await both("a*b@example.org") == [star, "axb@example.org"]
    assert await both("anna@b\u00fccher.example") == [wide, narrow]
    assert await both("ANNA@XN--BCHER-KVA.Example") == [wide, narrow]
    assert await both("*@b\u00fc*.example") == [wide, narrow]
    assert await both("?nna@xn--*") == [wide, narrow]
