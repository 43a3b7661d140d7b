"""Recipients known by asking the next hop: what decides, what is remembered, and how many probes a client can cause."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from mailcore.receiver.recipient_store import TRIM_EVERY
from mailcore.receiver.verification import Verification
from tests.deliverer.scripted_server import Act, ScriptedServer, server_tls, serving
from tests.eventually import eventually
from tests.receiver.configured_receiver import US, Configured, configured

VALID, UNKNOWN, LATER = "250 2.1.5", "550 5.1.1", "450 4.1.1"
REFUSED = {"no@example.org": b"550 5.1.1 no such user\r\n"}


def settings(*servers: ScriptedServer, more: str = "") -> str:
    """Recipients are known by asking; example.org is at the first server, example.net at the last one."""
    first, last = (f"smtp:[127.0.0.1]:{each.port}" for each in (servers[0], servers[-1]))
    return f"""
[recipients]
known_by = "next_hop"
{more}
[routes]
"example.org" = "{first}"
"example.net" = "{last}"
"closed.example.org" = "error:5.1.2 gone"
"thrown.example.org" = "discard:"
"""


def probes(server: ScriptedServer) -> int:
    return sum("RCPT" in session.verbs for session in server.sessions)


async def test_the_next_hop_decides_and_is_asked_once(tmp_path: Path) -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop, configured(tmp_path, settings(hop)) as server:
        replies = await server.replies("kim@example.org", "no@example.org", "KIM@example.org", "postmaster@example.org")
        assert [each[:9] for each in replies] == [VALID, UNKNOWN, VALID, VALID]
        assert replies[1] == (
            "550 5.1.1 <no@example.org>: Recipient address rejected: undeliverable address: "
            f"host 127.0.0.1[127.0.0.1]:{hop.port} said: 550 5.1.1 no such user"
        )
        assert await server.codes("no@example.org", "x@closed.example.org", "x@thrown.example.org") == [
            UNKNOWN, UNKNOWN, VALID,
        ]  # fmt: skip
        assert probes(hop) == 2
        assert hop.sessions[0].lines[1:] == ["MAIL FROM:<>", "RCPT TO:<kim@example.org>", "QUIT"]
        assert "status=unknown (host 127.0.0.1[127.0.0.1]" in server.mail_log


async def test_another_server_is_asked_after_a_file_of_routes_has_changed(tmp_path: Path) -> None:
    one, other = ScriptedServer(refuse=REFUSED), ScriptedServer()
    file = tmp_path / "transport"
    file.write_text("closed.example.org error:5.1.2 gone\n")
    async with (
        serving(one),
        serving(other),
        configured(tmp_path, settings(one) + f'[route_maps]\nroutes = ["{file}"]\n') as server,
    ):
        assert await server.codes("no@example.org", "no@closed.example.org") == [UNKNOWN, UNKNOWN]
        file.write_text(f"example.org smtp:[127.0.0.1]:{other.port}\nclosed.example.org discard\n")
        await eventually(lambda: "route_maps: 1 file in use" in server.mail_log)
        assert await server.codes("no@example.org", "no@closed.example.org") == [VALID, VALID]
        file.write_text("example.org nowhere\n")
        await eventually(lambda: "the routes read before stay in use" in server.mail_log)
        assert await server.codes("no@example.org") == [VALID]


async def test_without_a_usable_file_of_routes_recipients_may_try_later(tmp_path: Path) -> None:
    more = f'[route_maps]\nroutes = ["{tmp_path}/none"]\n'
    async with serving(ScriptedServer()) as hop, configured(tmp_path, settings(hop) + more) as server:
        assert await server.codes("kim@example.org") == [LATER]


async def test_our_own_clients_are_not_asked_about(tmp_path: Path) -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop, configured(tmp_path, settings(hop)) as server:
        assert await server.codes("no@example.org", source=US) == [VALID]
        assert hop.sessions == []


async def test_answers_survive_a_restart_and_are_shared(tmp_path: Path) -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop:
        async with configured(tmp_path, settings(hop)) as first, configured(tmp_path, settings(hop), 1) as second:
            assert await first.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]
            assert await second.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]
        async with configured(tmp_path, settings(hop)) as again:
            assert await again.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]
        assert probes(hop) == 2


@pytest.mark.parametrize(
    ("answers", "keywords"),
    [
        ({"RCPT": b"450 4.2.0 greylisted\r\n"}, ()),
        ({"RCPT": b"554 5.7.1 you are on a list\r\n"}, ()),
        ({"RCPT": b"530 log in first\r\n"}, ()),
        ({"RCPT": b"550 relay not permitted\r\n"}, ()),
        ({"RCPT": b"550 5.4.1 Recipient address rejected: Access denied\r\n"}, ()),
        ({"RCPT": b"553 sorry, that domain is not in my list\r\n"}, ()),
        ({"RCPT": b"554 Service unavailable; Client host blocked\r\n"}, ()),
        ({"RCPT": b"552 too many recipients\r\n"}, ()),
        ({"RCPT": b"552 5.2.2 mailbox full\r\n"}, ()),
        ({"RCPT": b"550 5.2.2 mailbox full\r\n"}, ()),
        ({"RCPT": b"550 5.1.8 sender refused\r\n"}, ()),
        ({"RCPT": b"550 5.7.1 relay denied\r\n"}, ()),
        ({"RCPT": [b"550 who knows\r\n", Act.HANG_UP]}, ()),
        ({"MAIL": b"550 5.1.8 no bounces, please\r\n"}, ()),
        ({"GREETING": b"554 go away\r\n"}, ()),
        ({"GREETING": Act.HANG_UP}, ()),
        ({"RCPT": Act.HANG_UP}, ()),
        ({"RCPT": b"hello\r\n"}, ()),
        ({"RCPT": b"250-" + b"x" * 100_000 + b"\r\n"}, ()),
    ],
)
async def test_what_is_not_about_the_recipient_decides_nothing(
    tmp_path: Path, answers: dict[str, bytes | Act], keywords: tuple[str, ...]
) -> None:
    """Above all, a next hop that refuses us must not make all recipients unknown for hours."""
    hop = ScriptedServer(dict(answers), keywords=keywords)
    async with serving(hop), configured(tmp_path, settings(hop)) as server:
        assert await server.codes("kim@example.org") == [LATER]
        hop.answers = {}
        assert await server.codes("kim@example.org") == [VALID]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"550 No such user here\r\n", UNKNOWN),
        (b"551 user not local\r\n", UNKNOWN),
        (b"550 5.4.1 Recipient address rejected: Access denied\r\n", UNKNOWN),
        (b"554 5.1.1 no such user\r\n", UNKNOWN),
        (b"550-5.1.10 not\r\n550 5.1.10 found\r\n", UNKNOWN),
        (b"554 Client host blocked\r\n", LATER),  # such checks often exempt postmaster
        (b"550 5.7.1 Client host blocked\r\n", LATER),
        (b"552 5.2.2 mailbox full\r\n", LATER),
    ],
)
async def test_postmaster_shows_whether_an_unclear_refusal_is_about_us(
    tmp_path: Path, reply: bytes, expected: str
) -> None:
    hop = ScriptedServer(refuse={"no@example.org": reply})
    async with serving(hop), configured(tmp_path, settings(hop)) as server:
        assert await server.codes("no@example.org") == [expected]


async def test_a_next_hop_that_is_down_changes_nothing_that_is_known(tmp_path: Path) -> None:
    more = "address_verify_negative_refresh_time_s = 0\naddress_verify_positive_refresh_time_s = 1"
    hop = ScriptedServer(refuse=REFUSED)
    async with serving(hop), configured(tmp_path, settings(hop, more=more)) as server:
        assert await server.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]
    aged(tmp_path, 100)
    async with configured(tmp_path, settings(hop, more=more)) as server:
        assert await server.codes("kim@example.org", "no@example.org", "new@example.org") == [VALID, UNKNOWN, LATER]
        await eventually(lambda: "status=undecided (connect to 127.0.0.1" in server.mail_log)
        aged(tmp_path, 32 * 86_400)
        assert await server.codes("kim@example.org", "no@example.org") == [LATER, LATER]
    accept = 'unverified_recipient_tempfail_action = "accept"'
    async with configured(tmp_path, settings(hop, more=accept)) as server:
        assert await server.codes("kim@example.org") == [VALID]


def store(home: Path) -> Path:
    return home / "var" / "receiver" / "recipients.sqlite3"


def aged(home: Path, seconds: int) -> None:
    """Makes all answers older."""
    database = sqlite3.connect(store(home))
    with database:
        database.execute("UPDATE verified SET at = at - ?", (seconds,))
    database.close()


async def test_an_old_answer_is_asked_for_again(tmp_path: Path) -> None:
    """A yes is used meanwhile; a no is not: the mailbox may have been made since."""
    hop = ScriptedServer(refuse=dict(REFUSED))
    async with serving(hop), configured(tmp_path, settings(hop)) as server:
        assert await server.codes("kim@example.org", "no@example.org") == [VALID, UNKNOWN]
        aged(tmp_path, 8 * 86_400)
        hop.refuse = {"kim@example.org": b"550 5.1.1 gone\r\n"}
        assert await server.codes("kim@example.org", "no@example.org") == [VALID, VALID]
        await eventually(lambda: "to=<kim@example.org>" in server.mail_log and server.mail_log.count("unknown (") == 2)
        assert await server.codes("kim@example.org") == [UNKNOWN]


async def test_after_a_change_of_the_route_the_other_next_hop_is_asked(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as old, serving(ScriptedServer(refuse=REFUSED)) as new:
        async with configured(tmp_path, settings(old)) as server:
            assert await server.codes("no@example.org") == [VALID]
        async with configured(tmp_path, settings(new)) as server:
            assert await server.codes("no@example.org") == [UNKNOWN]


async def test_a_slow_next_hop_delays_rcpt_for_a_bounded_time_and_no_other_session(tmp_path: Path) -> None:
    slow, quick = ScriptedServer({"RCPT": Act.SILENCE}), ScriptedServer()
    more = "address_verify_wait_s = 0.2"
    async with serving(slow), serving(quick), configured(tmp_path, settings(slow, quick, more=more)) as server:
        waiting = asyncio.create_task(server.codes("kim@example.org", "kim@example.org"))
        assert await server.codes("kim@example.net") == [VALID]
        assert await waiting == [LATER, LATER]
        assert probes(slow) == 1


async def test_a_client_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    hop = ScriptedServer({"GREETING": Act.SILENCE})
    async with serving(hop), configured(tmp_path, settings(hop)) as server:
        client = await server.client()
        await client.send(b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<kim@example.org>\r\n")
        await eventually(lambda: len(hop.sessions) == 1)
        client.reset()
        await eventually(lambda: not server.receiving.server.sessions)
        assert "failed" not in server.mail_log


async def test_commands_behind_rcpt_wait_for_its_answer(tmp_path: Path) -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop, configured(tmp_path, settings(hop)) as server:
        client = await server.client()
        await client.send(
            b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<no@example.org>\r\nRCPT TO:<kim@example.org>\r\nDATA\r\n"
        )
        assert [each[:3] for each in await client.replies(4)] == [b"250", b"550", b"250", b"354"]
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        ((envelope, _),) = server.lane.messages
        assert [each.address for each in envelope.recipients] == ["kim@example.org"]


async def test_a_flood_of_invented_recipients_is_no_flood_of_probes(tmp_path: Path) -> None:
    hop = ScriptedServer({"RCPT": b"550 5.1.1 no such user\r\n"})
    more = "address_verify_client_rate_limit = 3"
    async with serving(hop), configured(tmp_path, settings(hop, more=more)) as server:
        codes = await server.codes(*(f"x{number}@example.org" for number in range(8)))
        assert codes == [UNKNOWN] * 3 + [LATER] * 5
        assert await server.codes("x1@example.org", source="127.0.0.10") == [UNKNOWN]
        assert await server.codes("y@example.org", source="127.0.1.1") == [UNKNOWN]
        assert probes(hop) == 4
        assert "no probe for a recipient from [127.0.0.9]: its network asks for too many" in server.mail_log


async def test_probes_are_bounded_in_all_and_one_serves_all_that_wait(tmp_path: Path) -> None:
    hop = ScriptedServer({"RCPT": Act.SILENCE})
    more = "address_verify_concurrency = 2\naddress_verify_wait_s = 0.3"
    async with serving(hop), configured(tmp_path, settings(hop, more=more)) as server:
        names = "a", "a", "b", "c", "d"
        codes = await asyncio.gather(*(server.codes(f"{name}@example.org") for name in names))
        assert [each for (each,) in codes] == [LATER] * 5
        assert probes(hop) == 2
        assert "2 probes are under way" not in server.mail_log
        assert "address_verify_concurrency probes are under way" in server.mail_log


async def test_the_store_keeps_a_number_of_answers(tmp_path: Path) -> None:
    more = "address_verify_cache_entries = 1000\naddress_verify_client_rate_limit = 0"
    async with serving(ScriptedServer()) as hop, configured(tmp_path, settings(hop, more=more)) as server:
        assert await server.codes("kim@example.org") == [VALID]
        database = sqlite3.connect(store(tmp_path))
        with database:
            rows = [(f"k{number}", 1, number, "") for number in range(2000)]
            database.executemany("INSERT INTO verified VALUES (?, ?, ?, ?)", rows)
        verification(server)._writes = TRIM_EVERY - 1
        assert await server.codes("last@example.org") == [VALID]
        (count, oldest) = database.execute("SELECT count(*), min(at) FROM verified").fetchone()
        database.close()
        assert count == 1000
        assert oldest > 1000


def verification(server: Configured) -> Verification:
    made: Verification = server.receiving.checks._verification  # type: ignore[union-attr]
    return made


async def test_without_its_store_the_next_hop_is_asked_each_time(tmp_path: Path) -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop:
        (tmp_path / "var").mkdir()
        (tmp_path / "var" / "receiver").write_text("in the way")
        async with configured(tmp_path, settings(hop)) as server:
            assert await server.codes("kim@example.org", "no@example.org", "no@example.org") == [
                VALID,
                UNKNOWN,
                UNKNOWN,
            ]
            assert probes(hop) == 3
            assert server.mail_log.count("store of recipients") == 1


async def test_a_probe_is_encrypted_where_the_level_demands_it(tmp_path: Path) -> None:
    keywords = "STARTTLS", "SMTPUTF8"
    policy = '[tls_policy."[127.0.0.1]:{}"]\nlevel = "encrypt"\n'
    hop = ScriptedServer(tls=server_tls(tmp_path), keywords=keywords)
    clear = ScriptedServer()
    async with serving(hop), serving(clear):
        text = settings(hop, clear) + policy.format(clear.port)
        async with configured(tmp_path, text) as server:
            assert await server.codes("kim@example.org", "kim@example.net") == [VALID, LATER]
            assert hop.sessions[0].tls
            assert "does not offer STARTTLS" in server.mail_log
    broken = ScriptedServer({"STARTTLS": b"454 4.7.0 no certificate today\r\n"}, keywords=keywords)
    async with serving(broken), configured(tmp_path, settings(broken)) as server:
        assert await server.codes("kim@example.org") == [VALID]  # level "may": mail would go in the clear, too
