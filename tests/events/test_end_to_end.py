"""The whole appliance, an operator and kill -9: what the events say is what the next hop got, and with what the lanes hold
it balances, recipient by recipient."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import NotRunning
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.events.reading import checksum, ends, left, rows
from tests.json_lines import read_list
from tests.running.running_core import RunningCore, Sections, recipients_of, running

BEHAVIOUR = "reject(bad*@example.org, 550)+reject(never*@example.org, 451)+greylist(1)"
MESSAGES = 8
QUICK: Sections = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"recipient_limit": 2000, "tag_header": "X-Campaign"},
    "export": {"enabled": True, "interval_s": 0.2, "window_interval_s": 1},
}


async def ask(core: RunningCore, operation: str, **arguments: object) -> dict[str, object]:
    """The exporter, as soon as it is there: it may have been killed just now."""

    async def answered() -> dict[str, object] | None:
        exporter = AsyncControlClient(core.home / "run" / "exporter.sock", timeout_s=60.0)
        try:
            answer: dict[str, object] = await exporter.call(operation, arguments)
        except NotRunning:
            return None
        finally:
            await exporter.close()
        return answer

    found: dict[str, object] = await core.eventually(answered, "the exporter")
    return found


async def balanced(core: RunningCore) -> Counter[str]:
    """After a cut; how many recipients ended how."""
    cut = await ask(core, "cut", ids=True)
    events = core.home / "events"
    queued = {}
    for line in (events / "cuts" / str(cut["ids"])).read_text().splitlines():
        each = json.loads(line)
        queued[each["queue_id"]] = each["recipients"]
    found = rows(events)
    assert left(found) == {queue_id: count for queue_id, count in queued.items() if count}
    told = json.loads((events / str(cut["file"])).read_bytes())
    assert (told["recipients"], told["checksum"]) == (sum(queued.values()), checksum(left(found)))
    return Counter(status for numbers in ends(found).values() for status in numbers.values())


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def maps_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def test_the_exporter_stays_small_and_has_one_thread(tmp_path: Path) -> None:
    """What forks has one thread; pyarrow, which starts some, is loaded by the child that writes."""
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as core:
        await core.send("good@example.org")
        exporter = core.processes()["exporter"]
        written = await ask(core, "export")
        assert written["files"]
        assert threads_of(exporter) == 1
        assert "arrow" not in maps_of(exporter)
        assert core.processes()["exporter"] == exporter


async def test_every_recipient_is_in_the_events_or_in_a_lane(tmp_path: Path) -> None:
    async with Lab([f"{BEHAVIOUR}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as core:
        for number in range(MESSAGES):
            await core.send(
                f"good{number}@example.org", f"bad{number}@example.org", data=b"Subject: one\r\n\r\n" + b"x" * 9000
            )
        many = await core.send(*(f"r{n}@example.org" for n in range(1100)))
        never = await core.send("never1@example.org", "never2@example.org")
        await core.until_in(never, "retry")
        added = await core.ask("add_recipients", queue_id=never, recipients=["good@example.org", "never3@example.org"])
        assert added["changed"] == 1
        await core.kill("manager")
        await balanced(core)
        later = await core.inject("good-later@example.org", not_before=time.time() + 3600)
        await core.inject("good-now@example.org")
        gone = await core.send("never4@example.org")
        await core.until_in(gone, "retry")
        await core.order("delete", gone)
        held = await core.send("never5@example.org", "never6@example.org")
        await core.until_in(held, "retry")
        await core.order("hold", held)
        await core.kill_now("exporter")
        await core.kill("manager")
        await balanced(core)
        await core.again()

        async def rest(recipients: int) -> bool:
            return bool((await core.size())["recipients"] == recipients)

        left_for_good = 1 + 2  # scheduled, held
        await core.eventually(lambda: rest(left_for_good + 3), "all that can be delivered to be over")
        await core.ask("set", scope="", parameter="maximal_queue_lifetime", value=2.0)  # never1, 2 and 3 are older
        await core.eventually(lambda: rest(left_for_good), "everything else to be over")
        how = await balanced(core)

        found = rows(core.home / "events")
        accepted = {event["queue_id"]: event for event in found if event["kind"] == "accepted" and not event["part"]}
        assert accepted[later]["origin"] == "local"
        assert accepted[many]["recipient_count"] == 1100
        bounces = [event for event in accepted.values() if event["origin"] == "bounce"]
        assert how["bounced"] == MESSAGES
        assert how["expired"] == 4 - 1  # never1, 2 and 3
        assert how["delivered"] == 1100 + MESSAGES + 1 + 1 + len(bounces)
        orders = [(event["operation"], event["queue_id"]) for event in found if event["kind"] == "order"]
        assert sorted(orders) == sorted([("add_recipients", never), ("delete", gone), ("hold", held), ("set", "")])
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
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as core:
        queue_id = await core.send("a@example.org", data=b"X-Campaign: spring sale\r\nSubject: one\r\n\r\ntext\r\n")
        await core.until_removed(queue_id)
        cut = await Appliance.ask(core, "export", "--cut", "--ids")
        attempts: list[dict[str, Any]] = []
        for journal in sorted((core.home / "events").glob("dt=*/journal.*.parquet")):  # the exporter works meanwhile
            attempts += (await core.ask_list("export", "show", str(journal), "--kind", "attempt"))[0]
        assert [(row["recipient_domain"], row["source_address"], row["tls_verified"]) for row in attempts] == [
            ("example.org", "127.0.0.1", False)
        ]
        assert attempts[0]["tag"] == "spring sale"
        assert (cut["messages"], cut["recipients"]) == (0, 0)
        how_far = await Appliance.ask(core, "export")
        assert how_far["behind_bytes"] < 4096 * 20
        assert how_far["last_cut"] == Path(cut["file"]).name
        (file,) = (core.home / "events").glob("dt=*/incoming.0.*.parquet")
        rows, end = await core.ask_list("export", "show", str(file))
        assert [row["queue_id"] for row in rows] == [queue_id]
        assert (end["complete"], end["more"], end["events"]) == (True, False, 1)
        code, out, _ = await core._run("export", "show", str(core.config))
        assert code == 1
        items, end = read_list(out)
        assert (items, end["complete"], end["error"]["code"]) == ([], False, "invalid")
