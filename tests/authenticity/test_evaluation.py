"""A whole evaluation: what dkimpy signs passes, what was changed does not, and no answer of the DNS is ever waited for long."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mailcore.authenticity.evaluation import Client, Evaluation, Evaluator
from mailcore.config.authenticity import Authenticity
from tests.authenticity.mail import MESSAGE, dkimpy_verifies, ed25519_key, rsa_key, signed, stuffed
from tests.authenticity.zones import Zone

CLIENT = Client("192.0.2.1", "mx.shop.example", "ann@shop.example")
DMARC = {"_dmarc.shop.example TXT": ["v=DMARC1; p=reject"]}
KEYS = {"s._domainkey.shop.example TXT": [rsa_key()[1]], "e._domainkey.shop.example TXT": [ed25519_key()[1]]}


async def blocks_of(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def evaluated(
    message: bytes, records: dict[str, list[str]], client: Client = CLIENT, *, block: int = 65_536, **settings: Any
) -> Evaluation:
    failing = settings.pop("failing", ())
    header, separator, body = stuffed(message).partition(b"\r\n\r\n")
    assert separator
    evaluator = Evaluator(
        dataclasses.replace(Authenticity(evaluate="mx"), **settings), Zone(records, failing).ask, chance=lambda: 0.5
    )
    return await evaluator.evaluate(client, header + b"\r\n", blocks_of(body, block))


FORMS = [(one, two) for one in (b"relaxed", b"simple") for two in (b"relaxed", b"simple")]


@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("algorithm", ["rsa-sha256", "ed25519-sha256"])
async def test_a_signature_of_dkimpy_passes_in_blocks_of_any_size(algorithm: str, forms: tuple[bytes, bytes]) -> None:
    selector = "s" if algorithm == "rsa-sha256" else "e"
    message = signed(algorithm=algorithm, selector=selector, forms=forms)
    for block in (1, 2, 7, 65_536):
        found = await evaluated(message, KEYS | DMARC, block=block)
        assert found.signatures[0].result == "pass", found.signatures
        assert found.dmarc.result == "pass"
    changed = await evaluated(message.replace(b"noon", b"night"), KEYS | DMARC)
    assert (changed.dkim, changed.dmarc.result, changed.dmarc.policy) == ("fail", "fail", "reject")
    assert changed.signatures[0].reason == "the body was changed"
    changed = await evaluated(message.replace(b"lunch", b"lunches"), KEYS | DMARC)
    assert (changed.dkim, changed.signatures[0].reason) == ("fail", "the header was changed")


BODIES = [
    b"",
    b"\r\n",
    b"\r\n\r\n\r\n",
    b"x",
    b"x\r\n",
    b" \r\n",
    b"a \t b\r\n \r\n\r\n",
    b".\r\n..\r\n",
    b"\t\r\n\r\nx \r\n",
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
@pytest.mark.parametrize("forms", FORMS, ids=str)
async def test_odd_bodies_have_the_hash_that_dkimpy_makes(forms: tuple[bytes, bytes], body: bytes) -> None:
    message = signed(MESSAGE.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body, forms=forms)
    for block in (1, 65_536):
        assert (await evaluated(message, KEYS, block=block)).dkim == "pass"


async def test_a_body_longer_than_what_was_signed_counts_only_by_setting() -> None:
    message = signed(length=True)
    assert (await evaluated(message, KEYS)).dkim == "pass"  # l= is all of it
    longer = message + b"Buy now\r\n"
    found = await evaluated(longer, KEYS | DMARC)
    assert (found.dkim, found.dmarc.result) == ("policy", "fail")
    found = await evaluated(longer, KEYS | DMARC, partial_body="accept")
    assert (found.dkim, found.dmarc.result) == ("pass", "pass")
    shorter = message.replace(b"At noon?\r\n", b"")
    assert (await evaluated(shorter, KEYS, partial_body="accept")).dkim == "fail"


@pytest.mark.parametrize(
    ("records", "result"),
    [
        ([], "permerror"),
        (["v=DKIM1; k=rsa; p="], "permerror"),
        (["v=DKIM1; k=rsa; p=AAAA"], "permerror"),
        (["v=DKIM1; k=rsa; h=sha1; " + rsa_key()[1][18:]], "permerror"),
        (["v=DKIM1; k=rsa; s=chat; " + rsa_key()[1][18:]], "permerror"),
        ([ed25519_key()[1]], "permerror"),
        (["v=DKIM1; p=" + "A" * 60_000], "permerror"),
        ([";" * 60_000], "permerror"),
        (["something else", rsa_key()[1]], "pass"),
        ([rsa_key(2048)[1]], "fail"),
    ],
)
async def test_a_key_that_cannot_be_used_is_a_result(records: list[str], result: str) -> None:
    assert (await evaluated(signed(), {"s._domainkey.shop.example TXT": records})).dkim == result


async def test_short_keys_expired_and_incomplete_signatures_do_not_count() -> None:
    assert (await evaluated(signed(), KEYS, rsa_bits_min=2048)).signatures[0].result == "policy"
    message = signed()
    for wrong in (
        message.replace(b"v=1;", b"v=2;"),
        message.replace(b"rsa-sha256", b"rsa-sha1"),
        message.replace(b"d=shop.example;", b"d=shop.example; d=other.example;"),
        message.replace(b"i=@shop.example", b"i=@other.example"),
        message.replace(b"h=", b"g="),
        message.replace(b"q=dns/txt", b"q=http"),
        message.replace(b" s=s;", b" s=\xff;"),
    ):
        assert wrong != message
        assert (await evaluated(wrong, KEYS)).dkim == "permerror"
    field = message.partition(b"t=")[2].partition(b";")[0]
    expired = message.replace(b"t=" + field, b"t=1; x=2")
    assert (await evaluated(expired, KEYS)).signatures[0].reason == "the signature has expired"


async def test_signatures_are_bounded_and_one_that_passes_is_enough() -> None:
    broken = signed().partition(b"From: Ann")[0].replace(b"v=1;", b"v=2;")
    message = broken * 30 + signed()
    found = await evaluated(message, KEYS | DMARC, signatures_max=5)
    assert [each.result for each in found.signatures] == ["permerror"] * 5
    found = await evaluated(message, KEYS | DMARC, signatures_max=100)
    assert (found.dkim, found.dmarc.result) == ("pass", "pass")


async def test_a_signature_of_another_domain_is_valid_and_not_the_authors() -> None:
    records = {"s._domainkey.evil.example TXT": [rsa_key()[1]], **DMARC}
    found = await evaluated(signed(domain="evil.example"), records)
    assert (found.dkim, found.dmarc.result, found.dmarc.policy) == ("pass", "fail", "reject")


async def test_a_second_from_field_above_the_signed_one_passes_nothing() -> None:
    message = b"From: boss@shop.example\r\n" + signed(domain="shop.example")
    found = await evaluated(message, KEYS | DMARC)
    assert found.dmarc.result == "permerror"
    assert dkimpy_verifies(signed(), rsa_key()[1])
    oversigned = signed(names=[b"from", b"from", b"subject"])
    assert (await evaluated(oversigned, KEYS)).dkim == "pass"
    assert (await evaluated(b"From: x@shop.example\r\n" + oversigned, KEYS)).dkim == "fail"


async def test_failures_of_the_dns_are_temperror_and_never_a_refusal() -> None:
    names = ("s._domainkey.shop.example", "shop.example", "_dmarc.shop.example")
    found = await evaluated(signed(), {}, failing=names)
    assert (found.mail_from.result, found.dkim, found.dmarc.result) == ("temperror", "temperror", "temperror")
    found = await evaluated(signed(), DMARC, failing=names[:1])
    assert (found.dkim, found.dmarc.result, found.dmarc.policy) == ("temperror", "temperror", "none")


async def test_a_name_server_that_never_answers_costs_the_time_and_no_more() -> None:
    async def never(name: str, kind: str) -> tuple[list[str], float, bool]:
        await asyncio.Event().wait()
        raise AssertionError

    header, _, body = stuffed(signed()).partition(b"\r\n\r\n")
    evaluator = Evaluator(Authenticity(evaluate="mx", timeout_s=0.05), never, time.monotonic)
    found = await evaluator.evaluate(CLIENT, header + b"\r\n", blocks_of(body, 100))
    assert found.summary == "spf=temperror dkim=temperror arc=none dmarc=temperror"
    assert found.helo.result == "temperror"


@pytest.mark.parametrize(
    ("record", "sender", "result"),
    [
        ("v=spf1 ip4:192.0.2.1 -all", "ann@shop.example", "pass"),
        ("v=spf1 -all", "ann@shop.example", "fail"),
        ("v=spf1 ip4:192.0.2.1 -all", "ann@mail.shop.example", "pass"),
        ("v=spf1 ip4:192.0.2.1 -all", "ann@other.example", "fail"),
        ("v=spf1 ip4:192.0.2.1 -all", "", "pass"),  # by the name of HELO
    ],
)
async def test_spf_counts_if_its_domain_is_aligned(record: str, sender: str, result: str) -> None:
    names = ("shop.example", "mail.shop.example", "other.example", "mx.shop.example")
    records = {f"{name} TXT": [record] for name in names} | DMARC
    found = await evaluated(MESSAGE, records, CLIENT._replace(sender=sender))
    assert found.dmarc.result == result


async def test_records_that_include_one_another_end() -> None:
    records = {"shop.example TXT": ["v=spf1 include:a.example"], "a.example TXT": ["v=spf1 redirect=shop.example"]}
    found = await evaluated(MESSAGE, records)
    assert (found.mail_from.result, found.mail_from.reason) == ("permerror", "the SPF record needs too many look-ups")


async def test_bytes_that_are_not_ascii_break_nothing() -> None:
    message = MESSAGE.replace(b"lunch", b"d\xc3\xa9jeuner \xff").replace(b"noon", b"midi \xe9\x00")
    assert (await evaluated(signed(message), KEYS)).dkim == "pass"
    assert (await evaluated(MESSAGE.replace(b"Ann", b"\xff"), DMARC)).dmarc.result == "fail"
    assert (await evaluated(MESSAGE.replace(b"ann@shop", b"ann@sh\xffop"), DMARC)).dmarc.result == "permerror"
