"""Which domains the mail of a login may be signed for: those of its sender addresses, as the envelope says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.receiver.logins import submission, user
from tests.receiver.server_in_process import Client

KEYS = ("example.org", "example.net", "mail.example.com")


async def send(client: Client, sender: bytes = b"") -> None:
    await client.to_data(sender, b"any@other.example")
    await client.send(b"From: boss@example.net\r\n\r\nx\r\n.\r\n")
    assert (await client.reply()).startswith(b"250")


@pytest.mark.parametrize(
    ("senders", "expected"),
    [
        (("alice@example.org",), ("example.org",)),
        (("example.org", "a@example.net", "b@example.net"), ("example.net", "example.org")),
        (("sales.example.org", ".mail.example.com"), (".mail.example.com", "sales.example.org")),
        ((".example.com", "example.com", "elsewhere.example", ".com"), (".com", ".example.com")),
        ((), ()),
        (("*", "alice@example.org"), None),
    ],
)
async def test_the_envelope_has_the_domains_of_the_sender_addresses(
    tmp_path: Path, senders: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    """Of which there is a DKIM key, perhaps for the domain above or for one below: the others would only make it long."""
    async with submission(tmp_path, user(senders=senders), signed_domains=KEYS) as server:
        await send(await server.logged_in())
    assert server.intake.messages[0][0].author_domains == expected


async def test_a_change_of_the_sender_addresses_counts_for_the_next_message(tmp_path: Path) -> None:
    async with submission(tmp_path, user(), signed_domains=KEYS) as server:
        client = await server.logged_in()
        await send(client)
        before = server.authentication.users.get("alice")
        assert before is not None
        await server.changed(user(verifier=before.verifier, senders=("example.org",)))
        await send(client)
    assert [envelope.author_domains for envelope, _, _ in server.intake.messages] == [None, ("example.org",)]
