"""ARC seals: chains of several hops that dkimpy and our own evaluation verify, and chains that are not continued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import dkim
import pytest

from mailcore.authenticity.evaluation import Client, Evaluation, Evaluator
from mailcore.authenticity.policy import open_policy
from mailcore.authenticity.summary import chain_state
from mailcore.config.arc import Arc
from mailcore.config.authenticity import Authenticity
from mailcore.deliverer.message_data import DataFiles
from mailcore.deliverer.sealing import Sealing
from mailcore.dkim.key import new_key
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.milter.fields import Fields
from tests.authenticity.mail import MESSAGE, rsa_key, signed, stuffed
from tests.authenticity.zones import Zone

KEYS = {name: new_key("rsa") for name in ("one", "two", "three")}
RECORDS = {
    "s._domainkey.shop.example TXT": [rsa_key()[1]],
    "_dmarc.shop.example TXT": ["v=DMARC1; p=reject"],
    **{f"2026a._domainkey.{name}.example TXT": [key.record] for name, key in KEYS.items()},
}
CLIENT = Client("192.0.2.1", "mx.other.example", "ann@shop.example")


class Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def blocks(self) -> AsyncIterator[bytes]:
        yield self._data


class Message:
    """A message at reception, as the check of senders sees it."""

    def __init__(self, data: bytes) -> None:
        self.sender = CLIENT.sender
        self.held_because = self.authentication = ""
        self.fields, at = Fields.parse(b"Received: from x by y\r\n" + data)
        self._below = (b"Received: from x by y\r\n" + data)[at:]
        self.body = Body(self._below[2:])

    @property
    def data(self) -> bytes:
        return self.fields.data + self._below


async def received(data: bytes, name: str) -> Message:
    """What a host called NAME.example stores of a message that comes from outside."""
    message = Message(data)
    settings = Authenticity(evaluate="mx")
    policy = open_policy(settings, f"{name}.example", Zone(RECORDS).ask, lambda address, error: None)
    assert await policy.examine(message, CLIENT.address, CLIENT.helo, is_ours=False) == b""
    return message


async def sealed(directory: Path, data: bytes, name: str, state: str, *, is_key_there: bool = True) -> bytes:
    """What this host sends on."""
    key = directory / f"{name}.pem"
    if is_key_there:
        key.write_bytes(KEYS[name].pem)
        key.chmod(0o600)
    file = directory / "data"
    file.write_bytes(data)
    files = DataFiles(Disk(), asyncio.get_running_loop())
    settings = Arc(domain=f"{name}.example", selector="2026a", key=str(key))
    sealing = Sealing(settings, f"{name}.example", lambda path, why: None, lambda: 1.0, lambda: 1_790_000_000.0)
    opened = files.open(str(file), 0, len(data), sums_of(data))
    try:
        found = await sealing.seal(str(file), 0, opened, state)
        at, sent = 0, b""
        while at < found.length:
            sent += found.read(at)
            at = len(sent)
        again = await sealing.seal(str(file), 0, opened, state)
        assert again.length == found.length
        return sent
    finally:
        opened.close()
        files.close()


async def passed_on(directory: Path, data: bytes, name: str) -> bytes:
    message = await received(data, name)
    return await sealed(directory, message.data, name, chain_state(message.authentication))


async def evaluated(data: bytes, sets_max: int = 20) -> Evaluation:
    message = Message(data)
    evaluator = Evaluator(Authenticity(evaluate="mx", arc_sets_max=sets_max), Zone(RECORDS).ask)
    return await evaluator.evaluate(CLIENT, message.fields.of_client, message.body.blocks())


def dkimpy_state(data: bytes) -> bytes | None:
    def record(name: bytes, timeout: int = 5) -> bytes:
        return RECORDS[name.decode().removesuffix(".") + " TXT"][0].encode()

    state, _, _ = dkim.arc_verify(data.replace(b"\r\n..", b"\r\n."), dnsfunc=record)
    found: bytes | None = state
    return found


async def test_three_hosts_make_a_chain_that_is_verified_by_dkimpy_and_by_us(tmp_path: Path) -> None:
    data = stuffed(signed())
    for number, name in enumerate(KEYS, 1):
        data = await passed_on(tmp_path, data, name)
        assert data.count(b"ARC-Seal:") == number
        assert dkimpy_state(data) == b"pass"
        found = await evaluated(data)
        assert (found.arc.result, found.arc.sets, found.arc.domain) == ("pass", number, f"{name}.example")
    header = data.partition(b"\r\n\r\n")[0]
    assert b"ARC-Authentication-Results: i=1; one.example;\r\n\tspf=none" in header
    assert b"ARC-Authentication-Results: i=3; three.example;\r\n\t" in header
    assert b"arc=pass (i=2) header.d=two.example" in header
    changed = data.replace(b"At noon?", b"At night")
    assert (await evaluated(changed)).arc.reason == "the body was changed"
    assert dkimpy_state(changed) == b"fail"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Subject: lunch", b"Subject: more"),
        (b"i=1; one.example;", b"i=1; own.example;"),
        (b"cv=none", b"cv=pass"),
        (b"ARC-Seal: i=2; a=rsa-sha256; cv=pass", b"ARC-Seal: i=2; a=rsa-sha256; cv=none"),
        (b"ARC-Message-Signature: i=1;", b"ARC-Message-Signature: i=3;"),
        (b"ARC-Seal: i=1;", b"ARC-Seal: i=2;"),
        (b"ARC-Seal: i=1;", b"ARC-Seal: i=1; h=from;"),
        (b"ARC-Seal: i=1;", b"X-Seal: i=1;"),
        (b"ARC-Seal: i=1;", b"ARC-Seal: i=0;"),
    ],
)
async def test_a_chain_with_a_change_has_failed(tmp_path: Path, old: bytes, new: bytes) -> None:
    data = await passed_on(tmp_path, await passed_on(tmp_path, stuffed(MESSAGE), "one"), "two")
    assert (await evaluated(data)).arc.result == "pass"
    changed = data.replace(old, new)
    assert changed != data
    found = (await evaluated(changed)).arc
    assert found.result == "fail"
    assert found.reason
    assert dkimpy_state(changed) != b"pass"
    # The next host ends the chain, and no host continues it then.
    ended = await passed_on(tmp_path, changed, "three")
    assert b"cv=fail" in ended.partition(b"d=three.example")[0]
    assert dkimpy_state(ended) != b"pass"
    message = await received(ended, "one")
    assert chain_state(message.authentication) == "fail"
    assert await sealed(tmp_path, message.data, "one", "fail") == message.data


async def test_a_chain_longer_than_the_setting_has_failed(tmp_path: Path) -> None:
    data = await passed_on(tmp_path, await passed_on(tmp_path, stuffed(MESSAGE), "one"), "two")
    assert (await evaluated(data, sets_max=1)).arc.reason == "the chain is too long"


async def test_mail_is_not_sealed_without_our_results_or_a_key_or_a_known_state(tmp_path: Path) -> None:
    message = await received(stuffed(MESSAGE), "one")
    assert await sealed(tmp_path, message.data, "two", "none") == message.data  # the results are those of "one"
    assert await sealed(tmp_path, message.data, "one", "temperror") == message.data
    (tmp_path / "one.pem").unlink()
    assert await sealed(tmp_path, message.data, "one", "none", is_key_there=False) == message.data
    assert await sealed(tmp_path, message.data, "one", "none") != message.data
    (tmp_path / "one.pem").write_bytes(new_key("ed25519").pem)
    assert await sealed(tmp_path, message.data, "one", "none", is_key_there=False) == message.data


async def test_a_large_message_is_sealed_over_its_blocks(tmp_path: Path) -> None:
    data = await passed_on(tmp_path, stuffed(signed(MESSAGE + b".line\r\n" * 30_000)), "one")
    assert (await evaluated(data)).arc.result == "pass"
    assert (await evaluated(data)).dkim == "pass"
