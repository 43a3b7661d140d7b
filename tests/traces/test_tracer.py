"""The tracer over lanes that are written record by record: whatever happens to it or to the collector, no span is another."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.backup import backup
from mailcore.config.load import load_text
from mailcore.envelope import Origin, Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.record import RecordType
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Administrative, Delivery, Finish, Passed, Place, Replaced, encode
from mailcore.traces import tracer as tracer_module
from mailcore.traces.progress import Progress, progress_directory, read_progress, write_progress
from mailcore.traces.tracer import Tracer
from tests.events.lanes import DAY, Lanes
from tests.events.reading import Killed, MortalDisk
from tests.eventually import eventually_blocking
from tests.lookup.sample_messages import envelope as sample
from tests.traces.collector import Received, Seen, collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
Q = [f"1N{number:011}" for number in range(20)]
PLACE = Place("local", 0)
ARRIVED, ENDED = round((DAY + 10) * 1e9), round((DAY + 40) * 1e9)


class Traced:
    """A queue, a collector, and tracers that read the one and send to the other."""

    def __init__(self, path: Path, received: Received) -> None:
        self.path, self.received = path, received
        self.lanes = Lanes(path)
        write_progress(Disk(), self.directory, Progress())  # a tracer was there before the queue

    def settings(self, **traces: object) -> Any:
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in traces.items())
        text = f'home = "{self.path}"\n[receiver]\nhostname = "h.example"\ntag_header = "traceparent"\n[traces]\n'
        return load_text(self.path / "x.toml", f'{text}endpoint = "{self.received.url}"\n{lines}')

    @property
    def directory(self) -> Path:
        return progress_directory(self.settings())

    def turn(self, disk: Disk | None = None, **traces: object) -> None:
        """What is there is read and sent by a tracer that was just started."""
        self.lanes.covered()
        Tracer(self.settings(**traces), disk=disk).turn()

    def journal(self, kind: RecordType, body: Any) -> int:
        return self.lanes.writer(JOURNAL).append(kind, encode(body))

    def deliver(self, queue_id: str, *statuses: Status, delays: Any = (10.0, 5.0, 2.0, 3.0), **fields: Any) -> None:
        dsn = {Status.DELIVERED: "2.0.0", Status.DEFERRED: "4.2.0", Status.BOUNCED: "5.1.1", Status.EXPIRED: "4.4.7"}
        verdicts = tuple(Verdict(n, status, dsn[status], f"<r{n}@x.example>") for n, status in enumerate(statuses))
        given: dict[str, Any] = {
            "relay": "mx.x.example[2001:db8::1]:25",
            "tls": "TLSv1.3 AES",
            "destination": "smtp:x.example",
        }
        body = Delivery(queue_id, fields.pop("generation", 0), verdicts, DAY + 30, delays=delays, **(given | fields))
        self.journal(RecordType.DELIVERY, body)

    def finish(self, queue_id: str, generation: int = 0, **fields: Any) -> None:
        self.journal(RecordType.FINISH, Finish(queue_id, generation, at=DAY + 40, **fields))

    def message(self, queue_id: str, tag: str = "") -> None:
        """Accepted at 10 s of the day, delivered at 30, finished at 40."""
        self.lanes.accept(queue_id, tag=tag)
        self.deliver(queue_id, Status.DELIVERED, tag=tag)
        self.finish(queue_id)

    def one(self, queue_id: str, name: str) -> Seen:
        (span,) = self.received.of(queue_id, name)
        return span

    @property
    def progress(self) -> Progress:
        found = read_progress(Disk(), self.directory)
        assert found is not None
        return found

    def log(self) -> list[dict[str, Any]]:
        path = self.path / "log" / "mail.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    (tmp_path / "log").mkdir()
    with collector() as received:
        traced = Traced(tmp_path, received)
        yield traced
        traced.lanes.close()


def test_the_past_gets_no_traces_at_the_first_start(traced: Traced) -> None:
    (traced.directory / "progress.json").unlink()
    traced.message(Q[0])
    traced.turn()
    traced.message(Q[1])
    traced.turn()
    assert {span.queue_id for span in traced.received.spans} == {Q[1]}


def test_killed_at_any_step_all_spans_come_and_one_request_twice(traced: Traced) -> None:
    """Law: spans-from-the-log."""
    sent = Q[:6]
    for queue_id in sent:
        traced.message(queue_id)
    disk = MortalDisk()
    traced.turn(disk, batch_spans=7)
    wanted = {span.span_id: (span.name, span.start_ns, span.end_ns) for span in traced.received.spans}
    assert len(wanted) == len(traced.received.spans) == 4 * len(sent)
    assert disk.calls > 15
    for step in range(disk.calls):
        traced.received.taken.clear()
        write_progress(Disk(), traced.directory, Progress())
        with pytest.raises(Killed):
            traced.turn(MortalDisk(step), batch_spans=7)
        traced.turn(batch_spans=7)
        assert {span.span_id: (span.name, span.start_ns, span.end_ns) for span in traced.received.spans} == wanted
        assert len(traced.received.spans) - len(wanted) <= 7
    assert traced.progress.lanes == {lane: writer.durable for lane, writer in traced.lanes.writers.items()}


def test_what_restart_positions_do_not_cover_is_not_traced(traced: Traced) -> None:
    traced.message(Q[0])
    traced.lanes.sync()
    end = traced.lanes.writer(JOURNAL).durable
    traced.message(Q[1])
    traced.lanes.covered({JOURNAL: end}, times=1)
    traced.lanes.covered(times=1)
    Tracer(traced.settings()).turn()
    assert {span.queue_id for span in traced.received.spans if span.name == "message"} == {Q[0]}


def test_a_tracer_started_between_any_two_records_says_the_same(traced: Traced) -> None:
    """What a span needs of the records before is read again: the arrival of a report, whose ID is of its message's."""
    report = f"{Q[0]}B0"
    traced.lanes.accept(report, lane="local", origin=Origin.BOUNCE)
    traced.turn()
    traced.deliver(report, Status.DEFERRED)
    traced.turn()
    traced.journal(RecordType.REPLACED, Replaced(report, 0, Place("retry.60", 0), at=DAY + 31))
    traced.turn()
    traced.deliver(report, Status.DELIVERED, generation=1, delays=(13.0, 1.0, 1.0, 1.0))
    traced.turn()
    traced.finish(report, 1)
    traced.turn()
    root = traced.one(report, "message")
    assert (root.start_ns, root.end_ns) == (ARRIVED, ENDED)
    waits = traced.received.of(report, "queue")
    spans = [(wait.start_ns - ARRIVED, wait.end_ns - ARRIVED) for wait in waits]
    assert spans == [(0, 15 * 10**9), (18 * 10**9, 18 * 10**9)], (
        "the second from REPLACED on, at the latest from its end on"
    )


def test_a_forgotten_message_has_a_root_from_what_its_records_say(traced: Traced) -> None:
    report = f"{Q[1]}B0"
    for queue_id in (Q[0], report, Q[2]):
        traced.lanes.accept(queue_id)
    traced.deliver(report, Status.DELIVERED)
    traced.deliver(Q[0], Status.BOUNCED)
    traced.finish(report)
    traced.turn(messages_max=1)
    assert traced.one(report, "message").start_ns == ENDED, "the time in its ID is that of another message"
    assert traced.one(report, "queue").start_ns == ARRIVED, "the delays of the attempt say it"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_traceparent_in_the_header_is_the_trace_of_all_spans(traced: Traced, restarted: bool) -> None:
    traced.lanes.accept(Q[0], tag=GIVEN)
    traced.deliver(Q[0], Status.DELIVERED, tag=GIVEN)
    traced.message(Q[1])
    if restarted:
        traced.turn(trace_id="traceparent")
    traced.finish(Q[0])
    traced.turn(trace_id="traceparent")
    assert {span.trace_id for span in traced.received.of(Q[0])} == {TRACE}
    root = traced.one(Q[0], "message")
    assert root.parent_id == PARENT
    assert {span.parent_id for span in traced.received.of(Q[0]) if span is not root} == {root.span_id}
    assert len(traced.received.of(Q[1])) == 4
    assert TRACE not in {span.trace_id for span in traced.received.of(Q[1])}


def test_a_root_whose_traceparent_is_forgotten_is_not_sent_as_another_trace(traced: Traced) -> None:
    traced.finish(Q[0])
    traced.turn(trace_id="traceparent")
    assert not traced.received.spans


def test_messages_that_are_not_sampled_have_no_span_at_all(traced: Traced) -> None:
    for queue_id in Q:
        traced.message(queue_id)
    traced.turn(ratio=0.5)
    counts = [len(traced.received.of(queue_id)) for queue_id in Q]
    assert set(counts) == {0, 4}


def test_each_kind_of_end_has_its_event(traced: Traced) -> None:
    traced.deliver(
        Q[0],
        Status.DELIVERED,
        Status.DEFERRED,
        Status.BOUNCED,
        recipient_domains=("a.example", "b.example", "c.example"),
    )
    traced.deliver(Q[0], Status.EXPIRED, delays=(0.0,) * 4, relay="none", tls="")
    traced.journal(RecordType.ADMINISTRATIVE, Administrative("hold", Q[0], "someone", "why", DAY + 35))
    traced.finish(Q[0], bounce=PLACE)
    traced.turn()
    attempt, own = traced.received.of(Q[0], "deliver")
    assert set(attempt.events) == {"deferred", "bounced"}
    assert attempt.attributes["error.type"] == "4.2.0"
    assert (attempt.attributes["network.peer.address"], attempt.attributes["network.type"]) == ("2001:db8::1", "ipv6")
    assert (attempt.attributes["tls.protocol.version"], attempt.attributes["tls.cipher"]) == ("1.3", "AES")
    assert attempt.attributes["waypost.recipient.domains"] == ("a.example", "b.example", "c.example")
    assert (own.kind, own.start_ns, set(own.events)) == (1, own.end_ns, {"expired"})
    assert "server.address" not in own.attributes
    assert traced.one(Q[0], "order").attributes == {"waypost.queue_id": Q[0], "waypost.operation": "hold"}
    assert traced.one(Q[0], "message").events["report"][1]["waypost.report.queue_id"] == f"{Q[0]}B0"
    assert len(traced.received.of(Q[0], "queue")) == 1


@pytest.mark.parametrize("addresses", [False, True])
def test_addresses_of_people_are_sent_only_if_the_setting_says_so(traced: Traced, addresses: bool) -> None:
    traced.lanes.accept(Q[0], login="someone", client_address="192.0.2.9", message_id="<1@x.example>")
    traced.deliver(Q[0], Status.BOUNCED)
    traced.journal(RecordType.ADMINISTRATIVE, Administrative("hold", Q[0], "someone", "for r0@x.example", DAY + 35))
    traced.finish(Q[0])
    traced.turn(addresses=addresses)
    text = str([(span.attributes, span.events) for span in traced.received.spans])
    for each in ("sender@example.org", "r0@example.org", "someone", "192.0.2.9", "<r0@x.example>", "for r0@", "<1@"):
        assert (each in text) is addresses, each


@pytest.mark.parametrize(("status", "answer", "rejected"), [
    (400, b"", 12), (413, b"", 12), (200, b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}', 6),
    (200, b'{"partialSuccess":{"rejectedSpans":null}}', 0), (200, b"OK", 0), (200, b"[]", 0), (202, b"", 0),
])  # fmt: skip
def test_spans_that_the_collector_rejects_are_counted_and_not_sent_again(
    traced: Traced, status: int, answer: bytes, rejected: int
) -> None:
    traced.received.status, traced.received.answer = status, answer
    for queue_id in Q[:3]:
        traced.message(queue_id)
    traced.turn()
    traced.turn()
    assert (traced.progress.sent, traced.progress.rejected) == (12 - rejected, rejected)
    assert traced.received.requests == 2, "one for incoming.0 and one for the journal; nothing is sent twice"


@pytest.mark.parametrize(("status", "why"), [
    (503, "HTTP 503 Service Unavailable"), (429, "HTTP 429 Too Many Requests"), (404, "HTTP 404 Not Found"),
    (0, "no answer in time"),
])  # fmt: skip
def test_a_collector_that_takes_nothing_is_logged_once_and_loses_nothing(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, status: int, why: str
) -> None:
    traced.received.status, traced.received.headers = status, {"Retry-After": "0"}
    traced.message(Q[0])
    traced.lanes.covered()
    monkeypatch.setattr(tracer_module, "BACKOFF_S_MIN", 0.05)
    stopped = threading.Event()
    tracer = Tracer(traced.settings(timeout_s=0.2), stopped)
    thread = threading.Thread(target=tracer.run)
    thread.start()
    try:
        eventually_blocking(lambda: traced.received.requests > 1)
        assert [line["why"] for line in traced.log() if line["event"] == "collector_failed"] == [why]
        assert (traced.progress.failure, bool(traced.progress.failing_since)) == (why, True)
        assert "incoming.0" not in traced.progress.lanes
        traced.received.status = 200
        traced.received.ended.set()
        eventually_blocking(lambda: len(traced.received.of(Q[0])) == 4)
        eventually_blocking(lambda: traced.progress.sent == 4)
        assert (traced.progress.failure, traced.progress.failing_since) == ("", 0.0)
    finally:
        stopped.set()
        thread.join()
    assert [line["event"] for line in traced.log()].count("collector_failed") == 1


def test_what_was_deleted_before_it_was_read_is_counted_and_the_rest_is_sent(traced: Traced) -> None:
    for queue_id in Q:
        traced.lanes.accept(queue_id, tag="x" * 120)
    traced.lanes.sync()
    bases = traced.lanes.bases("incoming.0")
    for base in bases[:1]:
        (traced.path / "queue" / "incoming.0" / f"{base:020}.seg").unlink()
    traced.turn()
    assert traced.progress.lost_bytes == bases[1] - bases[0]
    sent = {span.queue_id for span in traced.received.spans}
    assert sent
    assert sent == set(Q[len(Q) - len(sent) :])


def test_a_queue_that_ends_before_the_position_is_read_from_its_end_on(traced: Traced) -> None:
    traced.message(Q[0])
    traced.lanes.sync()
    write_progress(Disk(), traced.directory, Progress(lanes={"incoming.0": 1 << 40, JOURNAL: 1 << 40}))
    traced.turn()
    assert not traced.received.spans
    traced.message(Q[1])
    traced.turn()
    assert len(traced.received.of(Q[1])) == 4


def test_a_damaged_progress_file_is_named_and_traces_go_on(traced: Traced) -> None:
    (traced.directory / "progress.json").write_bytes(b"{")
    traced.message(Q[0])
    traced.turn()
    traced.message(Q[1])
    traced.turn()
    assert {span.queue_id for span in traced.received.spans} == {Q[1]}


def test_a_fault_of_the_tracer_is_logged_once_and_ends_nothing(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def broken(self: Tracer) -> None:
        turns.append(1)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Tracer, "turn", broken)
    stopped = threading.Event()
    thread = threading.Thread(target=Tracer(traced.settings(interval_s=0.1), stopped).run)
    thread.start()
    try:
        eventually_blocking(lambda: len(turns) > 2)
    finally:
        stopped.set()
        thread.join()
    assert [line["why"] for line in traced.log()] == ["RuntimeError: a bug"]


def test_a_backup_has_no_position_of_traces(traced: Traced) -> None:
    """The restored queue may go another way: its traces begin at its end, as at the first start."""
    traced.message(Q[0])
    traced.turn()
    traced.lanes.run(everything=True)
    names: list[str] = []

    class Writer:
        def add_folder(self, name: str, path: Path) -> None:
            names.append(name)

        def add_file(self, name: str, path: str) -> None:
            names.append(name)

        def add_bytes(self, name: str, data: bytes, place: Path) -> None:
            names.append(name)

    backup._events(Writer(), traced.lanes.events, "")  # type: ignore[arg-type]
    assert [name for name in names if name.endswith(".parquet")]
    assert not [name for name in names if "_traces" in name]


def test_a_message_that_was_passed_on_has_all_spans_from_one_record(traced: Traced) -> None:
    verdict = Verdict(0, Status.DELIVERED, "2.0.0", "250 Ok")
    delivery = Delivery(Q[0], 0, (verdict,), DAY + 30, "mx.x.example[2001:db8::1]:25", delays=(15.0, 0.0, 2.0, 3.0))
    envelope = sample(queue_id=Q[0], arrived_at=DAY + 10)
    traced.journal(RecordType.PASSED, Passed(Q[0], envelope, delivery))
    traced.turn()
    assert sorted(span.name for span in traced.received.spans) == ["deliver", "message", "queue", "receive"]
    root = traced.one(Q[0], "message")
    assert (root.start_ns, root.end_ns) == (ARRIVED, round((DAY + 30) * 1e9))
    assert traced.one(Q[0], "deliver").end_ns == root.end_ns
