"""The envelope of a message with its final addresses: expanded, without loops and duplicates, within bounds."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mailcore.envelope import DataPlace, Envelope, Options, Recipient
from mailcore.rewriting.address_map import AddressMap, read_map
from mailcore.rewriting.rewriting import Bounds, Maps, rewrite


def table(**entries: str) -> AddressMap:
    """A map of users of x.example."""
    return AddressMap(
        {f"{user}@x.example": tuple(f"{each}@x.example" for each in to.split()) for user, to in entries.items()}, ()
    )


def envelope(*users: str, sender: str = "s@x.example", options: Options = ()) -> Envelope:
    recipients = tuple(Recipient(number, f"{user}@x.example", options=options) for number, user in enumerate(users))
    return Envelope(
        queue_id="Q", generation=0, sender=sender, recipients=recipients, recipient_count=len(recipients),
        arrived_at=1.0, size_bytes=1, data=DataPlace.INLINE,
    )  # fmt: skip


def final(maps: Maps, *users: str) -> list[str]:
    rewritten = rewrite(maps, envelope(*users), ())
    assert rewritten.why == ""
    recipients = (*rewritten.envelope.recipients, *rewritten.more)
    assert [recipient.number for recipient in recipients] == list(range(rewritten.envelope.recipient_count))
    return [recipient.address.partition("@")[0] for recipient in recipients]


def test_an_alias_is_expanded_in_order_and_nested() -> None:
    maps = Maps(aliases=[table(all="a staff b", staff="c d")])
    assert final(maps, "first", "all", "last") == ["first", "a", "c", "d", "b", "last"]


def test_an_address_is_there_once() -> None:
    maps = Maps(aliases=[table(all="a b", staff="b a c")])
    assert final(maps, "b", "all", "staff", "C") == ["b", "a", "c"]


def test_a_loop_ends_and_a_name_may_stand_for_itself() -> None:
    assert final(Maps(aliases=[table(a="b", b="a")]), "a") == ["a"]
    assert final(Maps(aliases=[table(kim="kim copy")]), "kim") == ["kim", "copy"]


def test_canonical_addresses_come_before_aliases() -> None:
    maps = Maps([table(s="sender")], [table(old="new")], [table(new="one two")])
    rewritten = rewrite(maps, envelope("old"), ())
    assert rewritten.envelope.sender == "sender@x.example"
    assert [each.address for each in rewritten.envelope.recipients] == ["one@x.example", "two@x.example"]
    assert rewrite(maps, envelope("old", sender=""), ()).envelope.sender == ""


def test_the_first_map_that_has_an_address_counts() -> None:
    assert final(Maps(aliases=[table(a="first"), table(a="second", b="third")]), "a", "b") == ["first", "third"]


def test_an_expansion_beyond_its_bounds_refuses_the_message() -> None:
    wide = table(all=" ".join(f"u{n}" for n in range(11)))
    assert "more than 10 addresses" in rewrite(Maps(aliases=[wide], bounds=Bounds(10, 10)), envelope("all"), ()).why
    deep = table(**{f"u{n}": f"u{n + 1}" for n in range(20)})
    assert "too deep" in rewrite(Maps(aliases=[deep], bounds=Bounds(10, 10)), envelope("u0"), ()).why
    many = Maps(aliases=[wide], bounds=Bounds(10, 20, of_all=5))
    assert "more than 5 recipients" in rewrite(many, envelope("all"), ()).why


def test_an_explosion_of_aliases_costs_little() -> None:
    """Each of 40 names stands for the next one twice, by another name: 2**40 ways."""
    names = {f"a{n}": f"a{n + 1} b{n + 1}" for n in range(40)} | {f"b{n}": f"a{n + 1} b{n + 1}" for n in range(40)}
    assert rewrite(Maps(aliases=[table(**names)]), envelope("a0"), ()).why


def test_the_original_address_stays_in_orcpt() -> None:
    maps = Maps(aliases=[table(**{"a+b": "c"})])
    (changed, same) = rewrite(maps, envelope("a+b", "d"), ()).envelope.recipients
    assert changed.options == (("ORCPT", "rfc822;a+2Bb@x.example"),)
    assert same.options == ()
    given: Options = (("NOTIFY", "FAILURE"), ("ORCPT", "rfc822;else@x.example"))
    (kept,) = rewrite(maps, envelope("a+b", options=given), ()).envelope.recipients
    assert kept.options == given


def test_a_long_list_is_divided_into_records() -> None:
    maps = Maps(aliases=[table(all=" ".join(f"u{n}" for n in range(2_500)))], bounds=Bounds(10, 5_000))
    rewritten = rewrite(maps, envelope("all"), ())
    assert (len(rewritten.envelope.recipients), len(rewritten.more)) == (1_000, 1_500)
    assert rewritten.envelope.recipient_count == 2_500


def test_copies_go_to_everyone_named_once_and_sender_hears_nothing_of_them() -> None:
    maps = Maps(
        aliases=[table(archive="store1 store2")],
        always_bcc="archive@x.example",
        sender_bcc=[table(s="boss")],
        recipient_bcc=[table(kim="audit", robin="audit")],
    )
    rewritten = rewrite(maps, envelope("kim", "robin", "boss"), ())
    found = [
        (each.address.partition("@")[0], dict(each.options).get("NOTIFY")) for each in rewritten.envelope.recipients
    ]
    never = "NEVER"
    assert found == [
        ("kim", None), ("robin", None), ("boss", None), ("store1", never), ("store2", never), ("audit", never),
    ]  # fmt: skip
    bounce = rewrite(maps._replace(always_bcc=""), envelope("else", sender=""), ())
    assert [each.address for each in bounce.envelope.recipients] == ["else@x.example"]


@pytest.mark.parametrize("use", ["sender_canonical", "recipient_canonical", "aliases", "sender_bcc", "recipient_bcc"])
def test_all_patterns_of_a_message_have_one_time(tmp_path: Path, use: str) -> None:
    """Each is within its own time: a thousand recipients would still keep all sessions waiting for minutes."""
    (tmp_path / "map").write_text("".join(f"/^u{number}$/ a@x.example\n" for number in range(50)))
    maps = Maps(**{use: [read_map(f"regexp:{tmp_path / 'map'}")]}, time_s=0.5)  # type: ignore[arg-type]
    ticks = itertools.count(0.0, 0.001 if use.startswith("recipient") or use == "aliases" else 0.1)
    refused = rewrite(maps, envelope(*(f"u{number}" for number in range(20))), (), lambda: next(ticks))
    assert refused.why.startswith(f"{tmp_path / 'map'}:")
    assert refused.why.endswith("the patterns take too long for all addresses of the message")
    assert refused.envelope.recipient_count == 20, "it is as it came"
    assert next(ticks) < 1, "they stopped when it was over"
    accepted = rewrite(maps, envelope("u1"), (), lambda: 0.0)
    assert accepted.why == ""
