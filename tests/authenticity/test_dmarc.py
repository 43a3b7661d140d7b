"""DMARC: records, the walk to the organizational domain, alignment, and what the domain wants."""

from __future__ import annotations

import pytest

from mailcore.authenticity.author import Author
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.dmarc import evaluate_dmarc
from mailcore.authenticity.spf import SpfResult
from tests.authenticity.zones import Zone

NO_SPF = SpfResult("none", "")
ORG = "_dmarc.shop.example TXT"


async def evaluated(
    record: str, author: str = "shop.example", spf: str = "", dkim: str = "", chance: float = 0.5, **more: str
) -> tuple[str, str]:
    records = {ORG: [record]} if record else {}
    records |= {f"_dmarc.{name.replace('__', '.')} TXT": [text] for name, text in more.items()}
    zone = Zone(records | {"there.shop.example A": ["192.0.2.1"]})
    result = await evaluate_dmarc(
        zone.answers,
        Author(author),
        SpfResult("pass", spf) if spf else NO_SPF,
        [DkimResult("pass", dkim)] if dkim else [],
        lambda: chance,
    )
    assert len(zone.asked) <= 8 * 3 + 4
    return result.result, result.policy


@pytest.mark.parametrize(
    ("record", "author", "wanted"),
    [
        ("", "shop.example", ("none", "none")),
        ("v=DMARC1; p=reject", "shop.example", ("fail", "reject")),
        ("v=DMARC1;p=quarantine;", "shop.example", ("fail", "quarantine")),
        ("v=DMARC1; P=Reject", "shop.example", ("fail", "reject")),
        ("v=dmarc1; p=reject", "shop.example", ("none", "none")),
        ("v=DMARC12; p=reject", "shop.example", ("none", "none")),
        ("p=reject; v=DMARC1", "shop.example", ("none", "none")),
        ("v=DMARC1; p=rejected", "shop.example", ("none", "none")),
        ("v=DMARC1; p=rejected; rua=mailto:a@shop.example", "shop.example", ("fail", "none")),
        ("v=DMARC1; p=reject; p=none", "shop.example", ("none", "none")),
        ("v=DMARC1; p=reject; sp=quarantine", "there.shop.example", ("fail", "quarantine")),
        ("v=DMARC1; p=reject; sp=quarantine; np=none", "there.shop.example", ("fail", "quarantine")),
        ("v=DMARC1; p=none; sp=quarantine; np=reject", "not.shop.example", ("fail", "reject")),
        ("v=DMARC1; p=reject", "a.b.c.shop.example", ("fail", "reject")),
        ("v=DMARC1; p=reject; t=y", "shop.example", ("fail", "quarantine")),
        ("v=DMARC1; p=reject; pct=51", "shop.example", ("fail", "reject")),
        ("v=DMARC1; p=reject; pct=50", "shop.example", ("fail", "quarantine")),
        ("v=DMARC1; p=quarantine; pct=0", "shop.example", ("fail", "none")),
        ("v=DMARC1; p=reject; pct=1000", "shop.example", ("fail", "reject")),
    ],
)
async def test_the_policy_is_that_of_the_record(record: str, author: str, wanted: tuple[str, str]) -> None:
    assert await evaluated(record, author) == wanted


@pytest.mark.parametrize(
    ("author", "other", "relaxed"),
    [
        ("shop.example", "shop.example", True),
        ("shop.example", "mail.shop.example", True),
        ("mail.shop.example", "shop.example", True),
        ("a.shop.example", "b.shop.example", True),
        ("shop.example", "workshop.example", False),
        ("shop.example", "example", False),
        ("shop.example", "evil.example", False),
    ],
)
async def test_alignment_is_relaxed_or_strict(author: str, other: str, relaxed: bool) -> None:
    for spf, dkim in ((other, ""), ("", other)):
        result, _ = await evaluated("v=DMARC1; p=reject", author, spf, dkim)
        assert result == ("pass" if relaxed else "fail")
        result, _ = await evaluated("v=DMARC1; p=reject; aspf=s; adkim=s", author, spf, dkim)
        assert result == ("pass" if author == other else "fail")


async def test_a_public_suffix_says_so_and_its_customers_are_not_aligned_with_one_another() -> None:
    wanted = await evaluated("", "one.host.example", dkim="two.host.example", host__example="v=DMARC1; p=reject; psd=y")
    assert wanted == ("fail", "reject")
    wanted = await evaluated(
        "", "a.one.host.example", dkim="one.host.example", host__example="v=DMARC1; p=reject; psd=y"
    )
    assert wanted[0] == "pass"


async def test_a_part_of_an_organization_may_stand_alone() -> None:
    wanted = await evaluated(
        "v=DMARC1; p=none", "a.unit.shop.example", dkim="shop.example", unit__shop__example="v=DMARC1; p=reject; psd=n"
    )
    assert wanted == ("fail", "reject")


async def test_a_deep_name_costs_eight_questions() -> None:
    author = ".".join(["x"] * 60) + ".shop.example"
    zone = Zone({ORG: ["v=DMARC1; p=reject"]})
    found = await evaluate_dmarc(zone.answers, Author(author), NO_SPF, [], lambda: 0.5)
    assert (found.result, found.policy) == ("fail", "reject")
    assert len(zone.asked) == 8


async def test_two_records_are_none() -> None:
    zone = Zone({ORG: ["v=DMARC1; p=reject", "v=DMARC1; p=none"]})
    assert (await evaluate_dmarc(zone.answers, Author("shop.example"), NO_SPF, [], lambda: 0.5)).result == "none"
