"""A keyword that is discarded for a server is not used with it, and what it was needed for fails as if it were not offered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.config.load import load_text
from mailcore.config.settings import TlsPolicy
from mailcore.deliverer.keyword_masks import NO_MASK, KeywordMasks, masks_of
from mailcore.frames import NextHop
from mailcore.tls.policy import Policies
from tests.deliverer.delivery import FixedHosts, Sender, outcomes, words
from tests.deliverer.scripted_server import ScriptedServer, server_tls, serving

KEYWORDS = ("PIPELINING", "SIZE 1000", "8BITMIME", "DSN", "STARTTLS", "CHUNKING", "BINARYMIME", "LIMITS RCPTMAX=1")
EVERY = tuple(keyword.partition(" ")[0] for keyword in KEYWORDS)
HOP = NextHop("example.org", 25, True)


def test_the_most_specific_entry_replaces_the_others() -> None:
    entries = {
        "example.org": ("DSN",),
        "example.org:587": (),
        ".example.org": ("SIZE",),
        "192.0.2.0/24": ("CHUNKING",),
        "192.0.2.1/32": (),
        "[192.0.2.77]": ("8BITMIME",),
    }
    masks = KeywordMasks({"slow": ("PIPELINING",)}, entries, 25)
    assert masks.of("slow", HOP, "198.51.100.1") == {"dsn"}
    assert masks.of("slow", NextHop("example.org", 587, True), "::1") == NO_MASK
    assert masks.of("slow", NextHop("a.example.org", 25, True), "198.51.100.1") == {"size"}
    assert masks.of("slow", HOP, "192.0.2.9") == {"chunking"}
    assert masks.of("slow", HOP, "192.0.2.1") == NO_MASK
    assert masks.of("slow", NextHop("192.0.2.77", 25, False), "198.51.100.1") == {"8bitmime"}
    assert masks.of("slow", NextHop("example.net", 25, True), "198.51.100.1") == {"pipelining"}
    assert masks.of("smtp", NextHop("example.net", 25, True), "198.51.100.1") == NO_MASK
    assert masks.of("slow", NextHop("/run/lmtp", 0, False), "/run/lmtp") == {"pipelining"}


def test_without_a_setting_there_are_no_masks(tmp_path: Path) -> None:
    assert masks_of(load_text(tmp_path / "waypost.toml", "")) is None
    assert masks_of(load_text(tmp_path / "waypost.toml", "[smtp_discard_ehlo_keywords]\n'e.org' = ['DSN']")) is not None


async def sent(
    directory: Path, *discarded: str, level: str = "may", **changes: object
) -> tuple[ScriptedServer, list[tuple[str, str]], str, str]:
    server = ScriptedServer(keywords=KEYWORDS, tls=server_tls(directory))
    async with serving(server):
        masks = KeywordMasks({"smtp": discarded}, {}, 25)
        policies = Policies({"example.org": TlsPolicy(level=level)}, 25)
        sender = Sender(directory, server.port, FixedHosts("127.0.0.1"), policies=policies, masks=masks)
        work = sender.work("a@example.org", "b@example.org", eight_bit=True)
        work = msgspec.structs.replace(work, **{"options": (("RET", "HDRS"),), **changes})
        result = await sender.deliver(work)
        sender.close()
    return server, outcomes(result), words(result), result.tls_level


async def test_what_is_discarded_is_not_used(tmp_path: Path) -> None:
    server, found, _, level = await sent(tmp_path, *EVERY)
    assert found == [("delivered", "2.0.0")] * 2
    (session,) = server.sessions
    assert not session.tls
    assert session.lines[1] == "MAIL FROM:<from@example.net>"
    assert session.lines.count("DATA") == 1  # LIMITS does not count
    assert all(burst.count(b"\r\n") == 1 for burst in server.bursts[:5])  # no pipelining
    assert level == "may: [tls_policy] example.org; sent in the clear: a setting discards STARTTLS of this server"


async def test_what_is_not_discarded_is_used(tmp_path: Path) -> None:
    server, found, _, _ = await sent(tmp_path, "SIZE")
    assert found == [("delivered", "2.0.0")] * 2
    (session,) = server.sessions
    assert session.tls
    assert "MAIL FROM:<from@example.net> BODY=8BITMIME RET=HDRS" in session.lines
    assert session.lines.count("DATA") == 2


@pytest.mark.parametrize("level", ["encrypt", "verify"])
async def test_no_setting_makes_mail_leave_in_the_clear_that_must_be_encrypted(tmp_path: Path, level: str) -> None:
    server, found, reply, _ = await sent(tmp_path, "STARTTLS", level=level)
    assert found == [("deferred", "4.7.4")] * 2
    assert reply == "TLS is required, but STARTTLS is discarded by a setting for host mx.example.org[127.0.0.1]"
    assert not server.messages


async def test_mail_that_needs_what_is_discarded_bounces(tmp_path: Path) -> None:
    _, found, reply, _ = await sent(tmp_path, "BINARYMIME", options=(("BODY", "BINARYMIME"),))
    assert found == [("bounced", "5.6.1")] * 2
    assert reply.startswith("BINARYMIME is required")


async def test_a_connection_is_not_used_for_a_next_hop_with_another_mask(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=("PIPELINING", "8BITMIME"))) as server:
        masks = KeywordMasks({}, {"careful.example": ("8BITMIME",)}, 25)
        sender = Sender(tmp_path, server.port, FixedHosts("127.0.0.1"), masks=masks)
        for host in ("example.org", "careful.example", "careful.example", "example.net"):
            await sender.send(host=host, eight_bit=True)
        sender.close()
        mails = [[line for line in session.lines if line.startswith("MAIL")] for session in server.sessions]
    plain, eight = "MAIL FROM:<from@example.net>", "MAIL FROM:<from@example.net> BODY=8BITMIME"
    assert mails == [[eight, eight], [plain, plain]]
