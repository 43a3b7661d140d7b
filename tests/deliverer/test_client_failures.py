"""Whose failure it is that nothing was delivered: the site's, the message's, or our own, with servers on real sockets."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.routing.resolve import Refused
from tests.deliverer.delivery import FixedHosts, Sender, outcomes, words
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving
from tests.exhausted import no_descriptors

DELIVERED = [("delivered", "2.0.0")]


class Failing:
    """A loop that cannot connect."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    async def create_connection(self, *arguments: object) -> None:
        number = self.errors.pop(0)
        raise OSError(number, os.strerror(number))


async def test_without_descriptors_it_is_no_failure_of_the_site_but_of_the_transport(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        work = sender.work()
        data = sender.open(work)
        with no_descriptors():
            result, _ = await sender.client.deliver(work, data)
        assert outcomes(result) == [("deferred", "4.3.0")]
        assert words(result).endswith("Too many open files")
        assert (result.site_failure, result.transport_failure) == (False, True)
        assert outcomes(await sender.send()) == DELIVERED


@pytest.mark.parametrize(
    ("errors", "site", "transport"),
    [
        ((errno.ECONNREFUSED, errno.ETIMEDOUT), True, False),
        ((errno.ENETUNREACH, errno.EHOSTUNREACH), True, False),
        ((errno.ENFILE, errno.ENFILE), False, True),
        ((errno.ENOBUFS, errno.ECONNREFUSED), False, True),
        ((errno.ECONNREFUSED, errno.ENOMEM), False, True),
        ((errno.EADDRNOTAVAIL, errno.EADDRNOTAVAIL), False, False),  # a stranger's AAAA must not stop all mail
        ((errno.EPERM, errno.ECONNREFUSED), False, False),
        ((errno.EAFNOSUPPORT, errno.EACCES), False, False),
    ],
)
async def test_what_connect_says_is_the_sites_or_ours_or_ours_with_this_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: tuple[int, ...], site: bool, transport: bool
) -> None:
    sender = Sender(tmp_path, 1, FixedHosts("127.0.0.1", "127.0.0.2"))
    monkeypatch.setattr(sender.client._opener, "_loop", Failing(*errors))
    result = await sender.send()
    assert (result.site_failure, result.transport_failure) == (site, transport)


@pytest.mark.parametrize(
    ("refused", "site", "transport"),
    [
        (Refused(Status.DEFERRED, "4.4.3", "Host not found, try again"), True, False),  # as in Postfix's smtp(8)
        (Refused(Status.DEFERRED, "4.3.0", "no name server", ours=True), False, True),
        (Refused(Status.BOUNCED, "5.4.4", "Host not found"), False, False),
    ],
)
async def test_a_domain_that_cannot_be_looked_up_for_now_is_the_sites_failure(
    tmp_path: Path, refused: Refused, site: bool, transport: bool
) -> None:
    result = await Sender(tmp_path, 1, FixedHosts(refused=refused)).send()
    assert (result.site_failure, result.transport_failure) == (site, transport)


@pytest.mark.parametrize(
    "answers",
    [
        {"MAIL": b"451 4.3.0 later\r\n"},
        {"MAIL": b"421 4.7.0 not you\r\n"},
        {"MAIL": Act.HANG_UP},
        {"RCPT": b"450 4.2.0 later\r\n", "DATA": b"503 5.5.1 no\r\n"},
        {"DATA": b"452 4.3.1 full\r\n"},
        {"DOT": b"451 4.3.0 later\r\n"},
        {"DOT": b"421 4.3.2 going down\r\n"},
        {"DOT": Act.RESET},
        {"EHLO": b"502 no\r\n", "HELO": b"550 5.7.1 never\r\n"},  # for good: it bounces
    ],
)
async def test_what_a_host_says_to_a_message_is_no_failure_of_the_site(
    tmp_path: Path, answers: dict[str, Answer | list[Answer]]
) -> None:
    async with serving(ScriptedServer(answers)) as server:
        result = await Sender(tmp_path, server.port).send()
        assert outcomes(result)[0][0] != "delivered"
        assert (result.site_failure, result.transport_failure) == (False, False)


async def test_all_hosts_must_fail_for_it_to_be_the_site(tmp_path: Path) -> None:
    hosts = FixedHosts("127.0.0.1", "127.0.0.2", "127.0.0.3")
    async with (
        serving(ScriptedServer({"GREETING": b"421 4.3.2 busy\r\n"})) as busy,
        serving(ScriptedServer({"EHLO": Act.RESET}), "127.0.0.2", busy.port),
    ):
        assert (await Sender(tmp_path, busy.port, hosts).send()).site_failure
        async with serving(ScriptedServer({"MAIL": b"450 4.2.0 later\r\n"}), "127.0.0.3", busy.port):
            assert not (await Sender(tmp_path, busy.port, hosts).send()).site_failure
        async with serving(ScriptedServer(), "127.0.0.3", busy.port):
            assert outcomes(await Sender(tmp_path, busy.port, hosts).send()) == DELIVERED
