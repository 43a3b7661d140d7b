"""Recipients of relay domains that the server behind us does not have are refused at RCPT, so that no bounce is needed."""

from __future__ import annotations

from pathlib import Path

from tests.eventually import eventually
from tests.receiver.configured_receiver import US, configured

BY_FILE = """
[recipients]
known_by = "file"
relay_recipient_maps = ["valid"]
any_domains = ["any.example.org"]
"""
UNKNOWN, VALID = "550 5.1.1", "250 2.1.5"


async def test_a_recipient_that_is_in_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "valid").write_text("kim@example.org OK\n@example.net OK\n")
    async with configured(tmp_path, BY_FILE) as server:
        replies = await server.replies("Kim@Example.ORG", "no@example.org", "x@any.example.org", "x@sub.example.org")
        assert [each[:9] for each in replies] == [VALID, UNKNOWN, VALID, UNKNOWN]
        assert replies[1] == ("550 5.1.1 <no@example.org>: Recipient address rejected: User unknown in relay domain")
        assert await server.codes("any@example.net", "kim+x@example.org", "x@other.example") == [
            VALID, UNKNOWN, "554 5.7.1",
        ]  # fmt: skip
        assert "RCPT from unknown[127.0.0.9]: 550 5.1.1 <no@example.org>" in server.mail_log


async def test_postmaster_is_always_a_recipient(tmp_path: Path) -> None:
    (tmp_path / "valid").write_text("kim@example.org\n")
    async with configured(tmp_path, BY_FILE) as server:
        assert await server.codes("PostMaster@example.org", "postmaster@x.example.org") == [VALID, VALID]


async def test_our_own_clients_learn_it_too_and_may_write_elsewhere(tmp_path: Path) -> None:
    """As Postfix, whose reject_unlisted_recipient is about mynetworks, too."""
    (tmp_path / "valid").write_text("kim@example.org\n")
    async with configured(tmp_path, BY_FILE) as server:
        assert await server.codes("no@example.org", "any@other.example", source=US) == [UNKNOWN, VALID]


async def test_an_alias_or_a_canonical_address_is_valid(tmp_path: Path) -> None:
    (tmp_path / "valid").write_text("kim@example.org\n")
    (tmp_path / "aliases").write_text("team@example.org kim@example.org, robin@elsewhere.example\n")
    (tmp_path / "canonical").write_text("/^k[.](.*)@example[.]org$/ $1@example.org\n")
    more = """
[rewriting]
virtual_alias_maps = ["aliases"]
recipient_canonical_maps = ["regexp:canonical"]
recipient_delimiter = "+"
"""
    async with configured(tmp_path, BY_FILE + more) as server:
        addresses = "team@example.org", "team+x@example.org", "kim+x@example.org", "k.im@example.org", "x@example.org"
        assert await server.codes(*addresses) == [VALID, VALID, VALID, VALID, UNKNOWN]


async def test_a_file_is_read_again_within_a_session_and_a_bad_one_is_not_used(tmp_path: Path) -> None:
    valid = tmp_path / "valid"
    valid.write_text("kim@example.org\n")
    async with configured(tmp_path, BY_FILE) as server:
        client = await server.client()
        await client.ask(b"MAIL FROM:<a@sender.example>")
        assert (await client.ask(b"RCPT TO:<robin@example.org>")).startswith(b"550")
        valid.write_text("robin@example.org\n")
        await eventually(lambda: "relay_recipient_maps: 1 entry in use" in server.mail_log)
        assert (await client.ask(b"RCPT TO:<robin@example.org>")).startswith(b"250")
        assert (await client.ask(b"RCPT TO:<kim@example.org>")).startswith(b"550")
        for content, fault in (("", "no address is in it"), ("nonsense\n", "'nonsense' is neither")):
            valid.write_text(content)
            await eventually(lambda fault=fault: fault in server.mail_log)
            assert (await client.ask(b"RCPT TO:<robin@example.org>")).startswith(b"250")
        assert "the list read before stays in use" in server.mail_log


async def test_without_a_usable_file_recipients_are_neither_accepted_nor_refused_for_good(tmp_path: Path) -> None:
    async with configured(tmp_path, BY_FILE) as server:
        assert await server.codes("kim@example.org", "x@any.example.org") == ["451 4.3.0", VALID]
        assert (
            "valid: cannot be read: No such file or directory; recipients of these domains get 451" in server.mail_log
        )
        (tmp_path / "valid").write_text("kim@example.org\n")
        await eventually(lambda: "1 entry in use" in server.mail_log)
        assert await server.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]


async def test_by_default_every_recipient_is_accepted_and_nothing_is_made_for_it(tmp_path: Path) -> None:
    async with configured(tmp_path, "") as server:
        assert await server.codes("any@example.org") == [VALID]
        assert server.receiving.checks is None
        assert server.receiving.server.context.checks is None
