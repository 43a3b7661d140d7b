"""The whole appliance with a collector: the traces of messages that are delivered, deferred and returned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.lab.lab import Lab
from tests.events.reading import rows
from tests.running.running_core import RunningCore, Sections, route_to, running
from tests.traces.collector import Received, Seen, collector

HOSTNAME = "mx.example.net"
BEHAVIOURS = ["reject(bad*@example.org, 550)+greylist(1):127.0.0.1:0", "accept:127.0.0.1:0"]
CLIENT, SERVER = 3, 2  # SpanKind of OTLP


def ids(queue_id: str) -> tuple[str, str]:
    """Trace id and id of the root span, as docs/traces.md says."""
    digest = sha256(f"{queue_id}@{HOSTNAME}".encode()).hexdigest()
    return digest[:32], digest[32:48]


@asynccontextmanager
async def traced(path: Path, received: Received, **traces: object) -> AsyncIterator[tuple[RunningCore, Lab]]:
    sections: Sections = {
        "receiver": {"hostname": HOSTNAME},
        "export": {"enabled": True, "window_interval_s": 60},
        "traces": {"endpoint": received.url, "interval_s": 0.1, "timeout_s": 1, **traces},
    }
    async with Lab(BEHAVIOURS) as lab:
        routes = {"fast.example": route_to(lab, 1)}
        async with running(path, lab, sections, routes=routes) as core:
            await core.until((core.home / "events/_traces/progress.json").exists, "the tracer")
            yield core, lab


async def until_traced(core: RunningCore, received: Received, *queue_ids: str) -> None:
    await core.until(lambda: all(received.of(each, "message") for each in queue_ids), "the root spans")


async def events(core: RunningCore) -> list[dict[str, Any]]:
    exporter = AsyncControlClient(core.home / "run" / "exporter.sock", timeout_s=60.0)
    await exporter.call("export", {})
    await exporter.close()
    return rows(core.home / "events")


def ns(at: float) -> int:
    return round(at * 1e9)


def check_tree(spans: list[Seen], queue_id: str) -> Seen:
    """One trace, whose spans all lie below the root and within its time. Returns the root."""
    trace_id, root_id = ids(queue_id)
    (root,) = [span for span in spans if span.name == "message"]
    assert (root.trace_id, root.span_id, root.parent_id, root.kind) == (trace_id, root_id, "", SERVER)
    for span in spans:
        assert span.trace_id == trace_id
        assert span is root or span.parent_id == root_id
        assert root.start_ns - 10_000 <= span.start_ns <= span.end_ns <= root.end_ns, span.name
    return root


async def test_traces_of_messages_that_are_delivered_deferred_and_returned(tmp_path: Path) -> None:
    with collector() as received:
        async with traced(tmp_path, received) as (core, lab):
            delivered = await core.send("one@fast.example")
            deferred = await core.send("good@example.org")
            returned = await core.send("bad@example.org")
            report = f"{returned}B0"
            await until_traced(core, received, delivered, deferred, returned, report)
            found = await events(core)
            host, port = lab.hops[1].address

        assert received.resource == {"service.name": "waypost", "service.version": "0.1.0", "host.name": HOSTNAME}
        at = {(row["queue_id"], row["kind"]): row["at"] for row in found if row["kind"] in ("accepted", "finished")}
        for queue_id in (delivered, deferred, returned, report):
            spans = received.of(queue_id)
            root = check_tree(spans, queue_id)
            (receive,) = received.of(queue_id, "receive")
            assert receive.start_ns == receive.end_ns == root.start_ns == ns(at[queue_id, "accepted"])
            assert root.end_ns == ns(at[queue_id, "finished"])
            attempts = [row for row in found if row["queue_id"] == queue_id and row["kind"] == "attempt"]
            assert [span.end_ns for span in received.of(queue_id, "deliver")] == [ns(row["at"]) for row in attempts]
            waits = received.of(queue_id, "queue")
            for wait, deliver, row in zip(waits, received.of(queue_id, "deliver"), attempts, strict=True):
                assert wait.end_ns == deliver.start_ns == ns(row["at"] - row["delay_c"] - row["delay_d"])
            assert waits[0].start_ns == root.start_ns

        (deliver,) = received.of(delivered, "deliver")
        assert deliver.kind == CLIENT
        wanted = {
            "server.address": host, "network.peer.address": host, "server.port": port, "network.type": "ipv4",
            "waypost.destination": f"smtp:[{host}]:{port}", "waypost.recipient.domains": ("fast.example",),
            "waypost.recipients.delivered": 1, "waypost.dsn": ("2.0.0",), "waypost.sender.domain": "sender.example",
        }  # fmt: skip
        assert deliver.attributes.items() >= wanted.items()
        assert not any(span.is_error or span.events for span in received.of(delivered))

        first, second = received.of(deferred, "deliver")
        assert first.is_error
        assert first.attributes["error.type"] == "4.2.0"
        assert first.events["deferred"] == (first.end_ns, {"waypost.recipients": 1, "waypost.dsn": ("4.2.0",)})
        assert not second.is_error
        (replaced,) = [row["at"] for row in found if row["kind"] == "replaced" and row["queue_id"] == deferred]
        assert received.of(deferred, "queue")[1].start_ns == ns(replaced)
        assert not received.of(deferred, "message")[0].is_error

        (failed,) = received.of(returned, "deliver")
        assert set(failed.events) == {"bounced"}
        root = received.of(returned, "message")[0]
        assert root.is_error
        assert root.events["report"][1] == {"waypost.report": "bounce", "waypost.report.queue_id": report}
        assert root.links == [ids(report)]
        assert received.of(report, "receive")[0].links == [ids(returned)]

        shown = str([[span.attributes, span.events] for span in received.spans])
        assert "@" not in shown, "an address of a person"
        assert "127.0.0.1" in shown, "of the next hop"
        assert "client.address" not in shown
        ends = [len({span.span_id for span in received.spans}), len(received.spans)]
        assert ends[0] == ends[1], "a span came twice without a kill"


@pytest.mark.long
async def test_kills_lose_no_span_and_double_at_most_one_request(tmp_path: Path) -> None:
    with collector() as received:
        async with traced(tmp_path, received, batch_spans=4, interval_s=0.1) as (core, _):
            sent = []
            for number in range(30):
                sent.append(await core.send(f"r{number}@fast.example"))
                if number % 6 == 5:
                    await core.kill("exporter")
            await until_traced(core, received, *sent)
        for queue_id in sent:
            check_tree(received.of(queue_id), queue_id)
            assert len(received.of(queue_id)) == 4
        doubled = len(received.spans) - len({span.span_id for span in received.spans})
        assert doubled <= 5 * 4


@pytest.mark.long
@pytest.mark.parametrize("status", [503, 0])
async def test_mail_is_delivered_while_the_collector_is_not_there(tmp_path: Path, status: int) -> None:
    with collector() as received:
        received.status = status
        async with traced(tmp_path, received) as (core, lab):
            sent = [await core.send(f"r{number}@fast.example") for number in range(5)]
            await core.until_removed(*sent)
            assert len(lab.hops[1].messages) == 5
            await core.until(lambda: [e for e in core.log() if e["event"] == "collector_failed"], "the line")
            await core.until(lambda: received.requests > 2, "some more tries")
            failures = [line for line in core.log() if line["event"] == "collector_failed"]
            assert [line["why"] for line in failures] == [
                "HTTP 503 Service Unavailable" if status else "no answer in time"
            ]
            await core.kill("exporter")
            received.status = 200
            received.ended.set()
            await until_traced(core, received, *sent)
            await core.until(lambda: [e for e in core.log() if e["event"] == "collector_answers"], "the line")
        for queue_id in sent:
            check_tree(received.of(queue_id), queue_id)
