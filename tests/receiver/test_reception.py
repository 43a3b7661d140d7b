"""What a 250 means: the lane and the spool hold the message, synced, and the manager and the log know in that order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from mailcore.config.clients import Clients
from mailcore.envelope import DataPlace
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.queue.ballast import INTAKE_BYTES, INTAKE_INODES
from mailcore.queue.spool import Spool
from mailcore.receiver import reception, refusals
from mailcore.receiver.manager_link import ManagerLink
from mailcore.receiver.refusals import Allowance
from tests.eventually import eventually
from tests.receiver.running_receiver import receiving, spooled_data
from tests.receiver.server_in_process import Client, without_trace

AUTHOR = b"From: a@example.com\r\nDate: Sun, 01 Mar 2026 12:00:00 +0000\r\nMessage-ID: <1@example.com>\r\n"
MESSAGE = b"Subject: x\r\n" + AUTHOR + b"\r\nbody\r\n"
BIG = b"Subject: big\r\n" + AUTHOR + b"\r\n" + b"0123456789abcdef\r\n" * 20_000


async def send(client: Client, data: bytes = MESSAGE) -> bytes:
    await client.to_data()
    await client.send(data + b".\r\n")
    return await client.reply()


async def test_a_small_message_lies_in_the_lane(tmp_path: Path) -> None:
    async with receiving(tmp_path) as receiver:
        reply = await send(await receiver.ready())
        ((envelope, data),) = receiver.lane.messages
        assert reply == f"250 2.0.0 Ok: queued as {envelope.queue_id}\r\n".encode()
        assert (envelope.data, envelope.size_bytes, envelope.message_id) == (
            DataPlace.INLINE,
            len(data),
            "<1@example.com>",
        )
        assert without_trace(data) == MESSAGE


async def test_no_250_before_the_sync(tmp_path: Path) -> None:
    """law: durable-before-250."""
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        receiver.disk.gate.clear()
        await client.to_data()
        await client.send(MESSAGE + b".\r\n")
        await asyncio.to_thread(receiver.disk.entered.wait)
        answer = asyncio.create_task(client.reply())
        other = await receiver.ready()
        assert (await other.ask(b"NOOP")).startswith(b"250")  # the loop has other clients meanwhile
        assert not answer.done()
        receiver.disk.gate.set()
        assert (await answer).startswith(b"250")


async def test_a_big_message_is_complete_in_the_spool_before_its_envelope_is_written(tmp_path: Path) -> None:
    """law: durable-before-250. Data, names, envelope, each synced before the next."""
    async with receiving(tmp_path) as receiver:
        await send(await receiver.ready())  # the lane's first segment is made
        receiver.disk.events.clear()
        assert (await send(await receiver.ready(), BIG)).startswith(b"250")
        (_, _), (envelope, data) = receiver.lane.messages
        assert (envelope.data, data) == (DataPlace.SPOOL, b"")
        spool = Spool(Disk(), str(receiver.settings.spool_directory))
        path = spool.path(envelope.queue_id)
        events = receiver.disk.events
        lane = next(each for kind, each in events if kind == "sync" and "incoming.0" in each)
        synced = events.index(("sync", path))
        named = events.index(("sync_directory", str(Path(path).parent)))
        assert max(at for at, event in enumerate(events) if event == ("write", path)) < synced < named
        assert named < events.index(("write", lane)) < events.index(("sync", lane))
        static, data_bytes = spool.read_envelope(envelope.queue_id)
        assert (static, data_bytes) == (msgspec.structs.replace(envelope, spool_bytes=0), envelope.size_bytes)
        assert envelope.spool_bytes == Disk().size_of(path)
        assert envelope.data_sums == sums_of(spooled_data(path, envelope))
        assert without_trace(spooled_data(path, envelope)) == BIG


async def test_a_failed_sync_is_451_for_all_who_waited_and_the_lane_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """law: no-sync-retry."""
    monkeypatch.setattr(reception, "RETRY_S", 0.01)
    async with receiving(tmp_path) as receiver:
        clients = [await receiver.ready() for _ in range(3)]
        await send(clients[0])
        receiver.disk.failing = "incoming.0"
        replies = await asyncio.gather(send(clients[0]), send(clients[1]), send(clients[2], BIG))
        assert set(replies) == {b"451 4.3.0 Error: queue file write error\r\n"}
        receiver.disk.failing = ""
        await eventually(lambda: not receiver.receiving.reception.closed())
        assert (await send(clients[0])).startswith(b"250")
        assert len(receiver.lane.messages) == 2
        assert len(list((receiver.settings.queue_directory / "incoming.0").glob("*.seg"))) >= 2
        await eventually(lambda: not list(receiver.settings.spool_directory.glob("*/*")))
        assert "sync of incoming.0 failed" in receiver.mail_log


async def test_a_lane_that_cannot_be_reopened_stops_the_accepting_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "RETRY_S", 0.05)
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        receiver.disk.failing = "incoming.0"
        assert (await send(client)).startswith(b"451 4.3.0")
        assert (await send(client)).startswith(b"451 4.3.0")  # the new segment failed as well
        await eventually(receiver.receiving.reception.closed)
        assert (await (await receiver.client()).rest()).startswith(b"421 4.3.0")
        receiver.disk.failing = ""
        await eventually(lambda: not receiver.receiving.reception.closed())
        assert (await send(client)).startswith(b"250")
        assert len(receiver.lane.messages) == 1
        assert receiver.mail_log.count("not accepting mail") == 1
        assert "accepting mail again" in receiver.mail_log


async def test_a_full_spool_is_452_and_leaves_nothing(tmp_path: Path) -> None:
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        receiver.disk.full = "/spool/"
        assert (await send(client, BIG)) == b"452 4.3.1 Insufficient system storage\r\n"
        receiver.disk.full = ""
        assert (await send(client)).startswith(b"250")
        await eventually(lambda: not list(receiver.settings.spool_directory.glob("*/*")))


async def test_the_reserve_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "DISK_LOOK_S", 0.0)
    async with receiving(tmp_path, queue={"reserve_bytes": 1_000_000}) as receiver:
        client = await receiver.ready()
        receiver.disk.free = 999_999
        assert await client.ask(b"MAIL FROM:<a@example.com>") == b"452 4.3.1 Insufficient system storage\r\n"
        assert await client.ask(b"MAIL FROM:<a@example.com>") == b"452 4.3.1 Insufficient system storage\r\n"
        receiver.disk.free = 1_100_000
        assert (await client.ask(b"MAIL FROM:<a@example.com> SIZE=200000")).startswith(b"452 4.3.1")
        assert (await client.ask(b"MAIL FROM:<a@example.com> SIZE=50000")).startswith(b"250")
        assert receiver.mail_log.count("is full: 999999 bytes free") == 1
        await eventually(lambda: receiver.mail_log.count("reject: MAIL"))
        assert receiver.mail_log.count("reject: MAIL") == 1, (
            "below the reserve refusals are not written down, only counted"
        )


async def test_low_inodes_refuse_mail_as_low_bytes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "DISK_LOOK_S", 0.0)
    async with receiving(tmp_path, queue={"reserve_inodes": 500}) as receiver:
        client = await receiver.ready()
        receiver.disk.inodes = 499
        assert await client.ask(b"MAIL FROM:<a@example.com>") == b"452 4.3.1 Insufficient system storage\r\n"
        assert "499 inodes free, 500 needed; refusing new mail" in receiver.mail_log
        receiver.disk.inodes = 500
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")


@pytest.mark.parametrize(("free", "inodes"), [(INTAKE_BYTES - 1, None), (None, INTAKE_INODES - 1)])
async def test_without_a_reserve_the_ballast_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None, inodes: int | None
) -> None:
    monkeypatch.setattr(reception, "DISK_LOOK_S", 0.0)
    async with receiving(tmp_path, queue={"reserve_bytes": 0, "reserve_inodes": 0}) as receiver:
        client = await receiver.ready()
        receiver.disk.free, receiver.disk.inodes = free, inodes
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"452 4.3.1")
        receiver.disk.free = receiver.disk.inodes = None
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")


async def test_a_lane_nobody_reads_is_not_filled_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "DISK_LOOK_S", 0.0)
    monkeypatch.setattr(reception, "LAG_LOOK_S", 0.0)
    async with receiving(tmp_path, queue={"lag_bytes_max": 1 << 20}) as receiver:
        client = await receiver.ready()
        for _ in range(25):
            assert (await send(client, b"x" * 50_000 + b"\r\n")).startswith(b"250")
            if receiver.receiving.writer.durable > 1 << 20:
                break
        assert await client.ask(b"MAIL FROM:<a@example.com>") == b"452 4.3.1 Insufficient system storage\r\n"
        read = LanePosition(runner=receiver.receiving.writer.durable, end=0)
        positions = RestartPositions(1, 0.0, {"incoming.0": read}, 0, 0)
        write_positions(Disk(), str(receiver.settings.queue_directory), positions)
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")


async def test_long_lists_of_recipients_lie_in_records_before_the_envelope(tmp_path: Path) -> None:
    async with receiving(tmp_path, recipient_limit=2500) as receiver:
        client = await receiver.ready()
        await client.send(b"MAIL FROM:<>\r\n" + b"".join(b"RCPT TO:<r%d@example.org>\r\n" % n for n in range(2500)))
        assert {reply[:3] for reply in await client.replies(2501)} == {b"250"}
        await client.ask(b"DATA")
        await client.send(MESSAGE + b".\r\n")
        assert (await client.reply()).startswith(b"250")
        lane = receiver.lane
        ((envelope, _),) = lane.messages
        assert [len(lane.recipients[offset]) for offset in envelope.batches] == [1000, 500]
        everybody = [*envelope.recipients, *(each for offset in envelope.batches for each in lane.recipients[offset])]
        assert [(each.number, each.address) for each in everybody] == [(n, f"r{n}@example.org") for n in range(2500)]
        assert envelope.recipient_count == 2500


async def test_refusals_are_recorded_without_a_sync_of_their_own(tmp_path: Path) -> None:
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        await send(client)
        receiver.disk.events.clear()
        await client.ask(b"MAIL FROM:<a@example.com> SIZE=99999999999")
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RCPT TO:<bad\xff@example.org>")
        await client.ask(b"RSET")
        assert receiver.disk.events == []
        await send(client)
        first, second = receiver.lane.refusals
        assert (first.stage, first.reply, first.client_address, first.helo) == (
            "MAIL",
            "552 5.3.4 Message size exceeds fixed limit",
            "127.0.0.1",
            "client.example",
        )
        assert (second.stage, second.sender, second.recipient) == ("RCPT", "a@example.com", "bad\ufffd@example.org")
        assert "reject: MAIL from unknown[127.0.0.1]: 552 5.3.4" in receiver.mail_log


async def test_refusals_without_mail_are_written_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FLUSH_S", 0.01)
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        await client.ask(b"MAIL FROM:<a@b@c>")
        await eventually(lambda: receiver.lane.refusals)


@pytest.mark.parametrize("mail_between", [False, True])
async def test_the_manager_hears_of_refusals_that_no_mail_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mail_between: bool
) -> None:
    monkeypatch.setattr(refusals, "FLUSH_S", 0.1)
    async with receiving(tmp_path) as receiver:
        told: list[tuple[int, int]] = []
        monkeypatch.setattr(
            ManagerLink, "durable", lambda link, end, messages, recipients: told.append((end, messages))
        )
        client = await receiver.ready()
        await send(client)
        await client.ask(b"MAIL FROM:<a@b@c>")
        if mail_between:
            await send(client)
            await client.ask(b"MAIL FROM:<a@b@c>")
        (lane,) = (receiver.settings.queue_directory / "incoming.0").glob("*.seg")
        refused = 2 if mail_between else 1
        await eventually(
            lambda: len(receiver.lane.refusals) == refused and bool(told) and told[-1][0] == lane.stat().st_size
        )
        assert sum(messages for _, messages in told) == refused
        assert [end for end, _ in told] == sorted(end for end, _ in told)


async def test_a_flood_of_refusals_is_counted_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "BURST", 10)
    at_once = Clients(error_sleep_time_s=0)
    async with receiving(tmp_path, error_limit=1000, clients=at_once) as receiver:
        client = await receiver.ready()
        await client.send(b"MAIL FROM:<a@b@c>\r\n" * 500)
        await client.replies(500)
        await send(client)
        assert 10 <= len(receiver.lane.refusals) < 500
        await eventually(lambda: "refusals not recorded" in receiver.mail_log)


def test_an_allowance_is_a_burst_and_then_so_many_a_second() -> None:
    allowance = Allowance(rate=2.0, burst=3, now=100.0)
    assert [allowance.taken(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert allowance.over == 2
    assert [allowance.taken(101.0) for _ in range(3)] == [True, True, False]
    assert [allowance.taken(1000.0) for _ in range(4)] == [True, True, True, False]


async def test_a_flood_of_bad_proxy_headers_hides_no_failure(tmp_path: Path) -> None:
    async with receiving(tmp_path) as receiver:
        await receiver.ready()
        told = receiver.receiving.reception
        for _ in range(100):
            told.proxy_refused("192.0.2.1", "no header")
        told.session_failed("192.0.2.2", ValueError("a bug"))
        await eventually(lambda: "a bug" in receiver.mail_log)
        assert 1 <= receiver.mail_log.count("192.0.2.1") < 50


async def test_the_log_tells_of_each_message_as_postfix_does(tmp_path: Path) -> None:
    async with receiving(tmp_path) as receiver:
        await send(await receiver.ready())
        ((envelope, _),) = receiver.lane.messages
        await eventually(lambda: "(queue active)" in receiver.mail_log)
        assert f"{envelope.queue_id}: client=unknown[127.0.0.1]" in receiver.mail_log
        assert f"{envelope.queue_id}: message-id=<1@example.com>" in receiver.mail_log
        assert f"from=<a@example.com>, size={envelope.size_bytes}, nrcpt=1" in receiver.mail_log
    assert msgspec.json.decode((receiver.settings.log_directory / "mail.jsonl").read_bytes().splitlines()[0])


async def test_many_clients_share_a_sync(tmp_path: Path) -> None:
    async with receiving(tmp_path, queue={"commit_delay_ms": 20.0}) as receiver:
        clients = [await receiver.ready() for _ in range(20)]
        await send(clients[0])
        receiver.disk.events.clear()
        for _ in range(3):
            replies = await asyncio.gather(*(send(client) for client in clients))
            assert all(reply.startswith(b"250") for reply in replies)
        assert [kind for kind, _ in receiver.disk.events].count("sync") <= 30
