"""A mail store behind Waypost, over a Unix socket: every recipient has one fate, also when the store breaks off."""

from __future__ import annotations

from pathlib import Path

from tests.deliverer.lmtp_server import Act, Answer, LmtpServer, storing
from tests.running.running_core import RunningCore

A, B, C, D = (f"{name}@store.example" for name in "abcd")


def core_before(path: Path, directory: Path) -> RunningCore:
    routes = {"store.example": f"lmtp:unix:{path}", "*": "smtp:[127.0.0.1]:1"}
    return RunningCore(directory, routes, {"transports.lmtp": {"protocol": "lmtp"}})


async def test_what_was_answered_stays_and_the_rest_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    fates: dict[str, Answer] = {B: b"550 5.7.1 Not here\r\n", C: Act.HANG_UP}
    async with storing(LmtpServer(fates), path) as server:
        core = core_before(path, tmp_path)
        await core.start()
        try:
            queue_id = await core.send(A, B, C, D)
            await core.eventually(lambda: _all_of(server, {A, C, D}), "A, C and D in the store")
            await core.until_removed(queue_id)
            assert sorted(server.delivered) == [A, C, D]  # A once: its 250 came before the connection broke
            assert [len(each.recipients) for each in server.messages] == [4, 2]  # B is not asked again
            log = (core.home / "log" / "mail.log").read_text()
            (refused,) = [line for line in log.splitlines() if f"to=<{B}>" in line]
            assert "dsn=5.7.1, status=bounced (host " in refused
            assert f"[{path}] said: 550 5.7.1 Not here (in reply to end of DATA command)" in refused
            assert f"to=<{A}>, relay=" in log
            assert f"[{path}], delay=" in log
        finally:
            await core.control.close()
            core.stop()


async def test_the_destination_is_named_by_its_socket_and_can_be_suspended(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    destination = f"lmtp:unix:{path}"
    async with storing(LmtpServer(), path) as server:
        core = core_before(path, tmp_path)
        await core.start()
        try:
            where = await core.ask("resolve", address=A)
            assert where["destination"] == destination
            assert [host["addresses"] for host in where["hosts"]] == [[str(path)]]
            await core.ask("suspend", destination=destination)
            queue_id = await core.send(A)
            assert (await core.size())["destinations"] == {destination: 1}
            await core.ask("resume", destination=destination)
            await core.until_removed(queue_id)
            assert server.delivered == [A]
        finally:
            await core.control.close()
            core.stop()


async def _all_of(server: LmtpServer, addresses: set[str]) -> bool:
    return addresses <= set(server.delivered)
