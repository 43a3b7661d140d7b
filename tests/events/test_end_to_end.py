"""The whole appliance, an operator and kill -9: what the events say is what the next hop got, and with what the lanes hold
it balances, recipient by recipient."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from mailcore.control.client import AsyncControlClient, NotRunning
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.events.reading import checksum, ends, left, rows
from tests.running.running_manager import House, Sections, recipients_of, running

BEHAVIOUR = "reject(bad*@example.org, 550)+reject(never*@example.org, 451)+greylist(1)"
MESSAGES = 8
QUICK: Sections = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"recipient_limit": 2000},
    "scheduler": {"maximal_queue_lifetime": 12.0, "bounce_queue_lifetime": 12.0},
    "export": {"enabled": True, "interval_s": 0.2, "window_interval_s": 1},
}


async def ask(house: House, operation: str, **arguments: object) -> dict[str, object]:
    """The exporter, as soon as it is there: it may have been killed just now."""

    async def answered() -> dict[str, object] | None:
        exporter = AsyncControlClient(house.home / "run" / "exporter.sock", timeout_s=60.0)
        try:
            answer: dict[str, object] = await exporter.call(operation, arguments)
        except NotRunning:
            return None
        finally:
            await exporter.close()
        return answer

    found: dict[str, object] = await house.eventually(answered, "the exporter")
    return found


async def balanced(house: House) -> Counter[str]:
    """After a cut; how many recipients ended how."""
    cut = await ask(house, "cut", ids=True)
    events = house.home / "events"
    queued = {}
    for line in (events / "cuts" / str(cut["ids"])).read_text().splitlines():
        each = json.loads(line)
        queued[each["queue_id"]] = each["recipients"]
    found = rows(events)
    assert left(found) == {queue_id: count for queue_id, count in queued.items() if count}
    told = json.loads((events / str(cut["file"])).read_bytes())
    assert (told["recipients"], told["checksum"]) == (sum(queued.values()), checksum(left(found)))
    return Counter(status for numbers in ends(found).values() for status in numbers.values())


async def test_every_recipient_is_in_the_events_or_in_a_lane(tmp_path: Path) -> None:
    async with Lab([f"{BEHAVIOUR}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as house:
        for number in range(MESSAGES):
            await house.send(
                f"good{number}@example.org", f"bad{number}@example.org", data=b"Subject: one\r\n\r\n" + b"x" * 9000
            )
        many = await house.send(*(f"r{n}@example.org" for n in range(1100)))
        never = await house.send("never1@example.org", "never2@example.org")
        await house.until_in(never, "retry")
        added = await house.ask("add_recipients", queue_id=never, recipients=["good@example.org", "never3@example.org"])
        assert added["changed"] == 1
        await house.kill("manager")
        await balanced(house)
        later = await house.inject("good-later@example.org", not_before=time.time() + 3600)
        await house.inject("good-now@example.org")
        gone = await house.send("never4@example.org")
        await house.until_in(gone, "retry")
        await house.order("delete", gone)
        held = await house.send("never5@example.org", "never6@example.org")
        await house.until_in(held, "retry")
        await house.order("hold", held)
        await house.kill_now("exporter")
        await house.kill("manager")
        await balanced(house)
        await house.again()

        async def rest() -> bool:
            return bool((await house.size())["recipients"] == 1 + 2)  # scheduled, held

        await house.eventually(rest, "everything else to be over")
        how = await balanced(house)

        found = rows(house.home / "events")
        accepted = {event["queue_id"]: event for event in found if event["kind"] == "accepted" and not event["part"]}
        assert accepted[later]["origin"] == "local"
        assert accepted[many]["recipient_count"] == 1100
        bounces = [event for event in accepted.values() if event["origin"] == "bounce"]
        assert how["bounced"] == MESSAGES
        assert how["expired"] == 4 - 1  # never1, 2 and 3
        assert how["delivered"] == 1100 + MESSAGES + 1 + 1 + len(bounces)
        orders = [(event["operation"], event["queue_id"]) for event in found if event["kind"] == "order"]
        assert sorted(orders) == sorted([("add_recipients", never), ("delete", gone), ("hold", held)])
        delivered = {(event["queue_id"], event["number"]) for event in found if event.get("status") == "delivered"}
        addresses = {
            (event["queue_id"], event["first_number"] + n): address
            for event in found
            if event["kind"] == "accepted"
            for n, address in enumerate(event["recipients"])
        }
        told = Counter(addresses.get(each, "good@example.org") for each in delivered)  # who was added is no arrival's
        assert told <= Counter(recipients_of(lab.messages)), "somebody is said to be delivered who was not"
        assert told.keys() == set(recipients_of(lab.messages)), "somebody was delivered who is not said to be"


async def test_the_command_exports_counts_and_looks_into_a_file(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as house:
        queue_id = await house.send("a@example.org")
        await house.until_removed(queue_id)
        cut = await Appliance.ask(house, "export", "--cut", "--ids")
        assert (cut["messages"], cut["recipients"]) == (0, 0)
        how_far = await Appliance.ask(house, "export")
        assert how_far["behind_bytes"] < 4096 * 20
        assert how_far["last_cut"] == Path(cut["file"]).name
        (file,) = (house.home / "events").glob("dt=*/incoming.0.*.parquet")
        shown = await Appliance.ask(house, "export", "show", str(file))
        assert [row["queue_id"] for row in shown["rows"]] == [queue_id]
        code, out, _ = await house._run("export", "show", str(house.config))
        assert code == 1
        assert not out
