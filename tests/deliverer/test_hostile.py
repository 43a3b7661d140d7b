"""Hostile next hops: what becomes of the mail, whose failure it is, and that others get theirs. Over real sockets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.deliverer.delivery import BODY, LIMITS, Sender, outcomes
from tests.deliverer.hostile_cases import CASES, Case
from tests.deliverer.hostile_server import HostileServer
from tests.deliverer.lmtp_server import LmtpServer
from tests.deliverer.scripted_server import ScriptedServer, server_tls, serving

BIG = BODY + b"x" * 998 + b"\r\n" * 300_000


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 90


def _server(case: Case, directory: Path) -> HostileServer:
    answers = dict(case.answers)
    if case.lmtp:
        answers = {"LHLO": b"250-store.example.org\r\n250 PIPELINING\r\n", **answers}
    keywords = (*case.keywords, "STARTTLS") if case.tls and case.offers_tls else case.keywords
    shakes_hands = case.tls and ("STARTTLS" not in answers or b"inject" in case.name.encode())
    return HostileServer(
        answers,  # type: ignore[arg-type]
        keywords=(*keywords, *case.keywords_in_clear),
        keywords_in_tls=case.keywords,
        refuse=case.refuse,
        tls=server_tls(directory) if shakes_hands else None,
    )


def _sender(case: Case, directory: Path, port: int) -> Sender:
    patience_s = case.patience_s
    limits = dataclasses.replace(
        LIMITS,
        greeting_timeout_s=patience_s,
        command_timeout_s=patience_s,
        data_timeout_s=patience_s,
        final_timeout_s=patience_s,
    )
    transport = ["smtp"]
    return Sender(
        directory, port, limits=limits, lmtp=transport if case.lmtp else (), chunked=transport if case.chunked else ()
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_mail_to_a_hostile_next_hop_is_neither_lost_nor_doubled(case: Case, tmp_path: Path) -> None:
    async with serving(_server(case, tmp_path)) as server:
        assert isinstance(server, HostileServer)
        sender = _sender(case, tmp_path, server.port)
        result = await sender.send(
            *case.recipients, tls=case.tls or "may", smtputf8=case.smtputf8, body=BIG if case.big else BODY
        )
        got = outcomes(result)
        assert len(got) == len(case.outcomes), got
        for (status, dsn), (wanted, beginning) in zip(got, case.outcomes, strict=True):
            assert (status, dsn[: len(beginning)]) == (wanted, beginning), (got, result.verdicts)
        assert (result.site_failure, result.transport_failure) == (case.site, False), result.verdicts
        if case.tls not in ("", "may") and got[0][0] == "delivered":
            assert result.tls
        assert all(len(verdict.reply) <= 2000 for verdict in result.verdicts)
        good: ScriptedServer = LmtpServer() if case.lmtp else ScriptedServer()
        async with serving(good):
            sender.port = good.port
            assert outcomes(await sender.send())[0][0] == "delivered", "the client must go on with others"
        sender.close()
        assert not server.read_without_bound
    # A server that asked for the data of no recipient gets the dot alone (RFC 2920 3.1).
    assert len([message for message in server.messages if message.data]) == case.got
