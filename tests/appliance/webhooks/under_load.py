"""Mail under which webhooks are tried, and what is asked of them afterwards: nothing is missing, each message's events are in
order, and what comes twice is marked."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mailcore.control.client import ControlError
from mailcore.control.protocol.events import EventBatch
from tests.appliance.webhooks.receiver import Receiver, Taken
from tests.appliance.webhooks.sending import Sending
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore

__all__ = [
    "BEHAVIOUR",
    "agreed",
    "at_work",
    "check",
    "everything",
    "kill_manager",
    "load",
    "over",
    "trouble",
    "until_sent",
]

BEHAVIOUR = "reject(bad*@example.org, 550)+greylist(1)"  # of the next hop
FINAL = {"delivered", "bounced", "expired", "deleted"}
SLOW_S = 1.5  # a receiver that is slow, where ``webhook_timeout_s`` is less


@contextmanager
def load(core: RunningCore, clients: int, pause_s: float) -> Iterator[list[str]]:
    """Clients that send one message after the other; the queue ids of what was accepted."""
    accepted: list[str] = []
    over = threading.Event()

    def send(client: int) -> None:
        number = 0
        while not over.is_set():
            try:
                with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as connection:
                    connection.ehlo("client.example")
                    while not over.is_set():
                        number += 1
                        recipients = [f"good{client}.{number}@fast.example"]
                        if number % 4 == 0:
                            recipients.append(f"bad{client}.{number}@example.org")
                        if number % 9 == 0:
                            recipients.append(f"late{client}.{number}@example.org")
                        connection.mail("author@sender.example")
                        for recipient in recipients:
                            connection.rcpt(recipient)
                        code, reply = connection.data(f"X-Campaign: c{client}\r\n\r\n{'x' * 2_000}\r\n".encode())
                        if code == 250:
                            accepted.append(reply.decode().split()[-1])
                        over.wait(pause_s)
            except (OSError, smtplib.SMTPException):
                over.wait(0.1)

    threads = [threading.Thread(target=send, args=(client,), daemon=True) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield accepted
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)


async def everything(core: RunningCore) -> list[dict[str, Any]]:
    """All events of the feed, from its beginning."""
    events: list[dict[str, Any]] = []
    after = "oldest"
    while True:
        batch: EventBatch = await core.control.ask("events", EventBatch, {"after": after, "limit": 1_000})
        events += [{name: getattr(event, name) for name in event.__struct_fields__} for event in batch.events]
        after = batch.cursor
        if not batch.more:
            return events


def check(taken: list[Taken], feed: list[dict[str, Any]], wanted: set[str] | None = None) -> Counter[str]:
    """Nothing is missing, nothing is more, each message is in order, and what came twice is marked. Returns counts."""
    expected = {event["id"]: event for event in feed if wanted is None or event["kind"] in wanted}
    first: dict[str, dict[str, Any]] = {}
    deliveries: dict[str, list[Taken]] = defaultdict(list)
    of_event: dict[str, set[str]] = defaultdict(set)
    for request in taken:
        deliveries[request.delivery].append(request)
        assert request.events
        for event in request.events:
            first.setdefault(event["id"], event)
            of_event[event["id"]].add(request.delivery)
    missing = expected.keys() - first.keys()
    assert not missing, f"{len(missing)} of {len(expected)} events are missing: {sorted(missing)[:5]}"
    assert first == expected
    assert all(len(ids) == 1 for ids in of_event.values()), "an event came again under another delivery"
    for requests in deliveries.values():
        attempts = [request.attempt for request in requests]
        assert len(set(attempts)) == len(attempts), attempts
        assert all(attempt > 1 for attempt in sorted(attempts)[1:])
        assert len({request.body for request in requests}) == 1
    of_message: dict[tuple[str, str], list[str]] = defaultdict(list)
    for event in first.values():
        of_message[event["queue_id"], event["recipient"]].append(event["kind"])
    if wanted is None:
        for key, kinds in of_message.items():
            assert kinds[0] == "accepted", (key, kinds)
            assert kinds[-1] in FINAL, (key, kinds)
            assert not {*kinds[1:-1]} - {"deferred"}, (key, kinds)
    place = {event["id"]: number for number, event in enumerate(feed)}
    told: dict[str, list[int]] = defaultdict(list)
    for number, event in first.items():
        told[event["queue_id"]].append(place[number])
    assert all(places == sorted(places) for places in told.values())
    return Counter(
        events=len(expected),
        requests=len(taken),
        again=sum(len(requests) - 1 for requests in deliveries.values()),
        messages=len({event["queue_id"] for event in expected.values()}),
    )


async def over(core: RunningCore) -> None:
    async def empty() -> bool:
        return not (await core.insist(core.size))["messages"]

    await core.eventually(empty, "all mail to be over")


async def agreed(core: RunningCore, receiver: Receiver) -> list[dict[str, Any]]:
    """Returns all events once the receiver has them.

    An event is in the feed when both restart positions cover it, one or two checkpoints after the queue is empty: a look in
    between would take the last ones for lost.
    """
    feed: list[dict[str, Any]] = []

    async def has_all() -> bool:
        await asyncio.sleep(0.5)  # a look reads all events
        feed[:] = await everything(core)
        try:
            check(receiver.taken, feed)
        except AssertionError:
            return False
        return True

    with contextlib.suppress(AssertionError):  # what is missing then is said by the caller's check
        await core.eventually(has_all, "all events at the receiver")
    return feed


async def until_sent(sending: Sending, core: RunningCore, name: str) -> None:
    """Until the webhook has nothing left: its cursor has nothing behind it."""

    async def done() -> bool:
        hook = sending.hook(name)
        if hook["sending"]:
            return False
        try:
            asked = {"after": hook["cursor"], "limit": 1}
            batch: EventBatch = await core.control.ask("events", EventBatch, asked)
        except ControlError:
            return False
        return not batch.events and not batch.more

    await core.eventually(done, f"{name} to have sent all")


async def at_work(sending: Sending, core: RunningCore) -> None:
    """Until the process that was started last sends: it tries the receiver that is dead."""
    before = sending.hook("dead")["failed_requests"]
    await core.until(lambda: sending.hook("dead")["failed_requests"] > before, "the process to send")


async def kill_manager(core: RunningCore) -> None:
    """Kills the manager that runs: the supervisor may be starting it just now."""

    async def killed() -> bool:
        try:
            await core.kill_now("manager")
        except (KeyError, ProcessLookupError):
            return False
        return True

    await core.eventually(killed, "a manager to kill")


async def trouble(receiver: Receiver, how: str, seconds: float) -> None:
    """The receiver is in trouble for a while."""
    if how == "away":
        receiver.stop()
    else:
        receiver.behaviour, receiver.slow_s = how, SLOW_S
    await asyncio.sleep(seconds)
    receiver.behaviour = "good"
    if how == "away":
        receiver.start()
