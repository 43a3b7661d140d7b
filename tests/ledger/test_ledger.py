"""The judge is judged: what the client says was acknowledged is what arrived, and each fault shows."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from mailcore.lab.arrival import content_digest
from mailcore.lab.lab import Lab
from tests.ledger.client import LoadClient, stuffed
from tests.ledger.comparison import compare
from tests.ledger.corpus import SHAPES, Corpus, Message
from tests.ledger.ledger import Ledger, State


async def sent_through(behaviour: str, corpus: Corpus, **options: object) -> tuple[Ledger, Lab, LoadClient]:
    ledger = Ledger()
    async with Lab([f"{behaviour}:127.0.0.1:0"], seed=3) as lab:
        client = LoadClient(lab.hops[0].address, ledger, **options)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            await client.send(corpus)
    return ledger, lab, client


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("pipelining", [True, False])
async def test_each_message_is_acknowledged_and_arrives_unaltered(keep_alive: bool, pipelining: bool) -> None:
    corpus = Corpus(count=200, seed=1, domains=("a.example", "b.example"))
    ledger, lab, _ = await sent_through("accept", corpus, keep_alive=keep_alive, pipelining=pipelining)
    comparison = compare(ledger, lab.messages)
    assert comparison.clean, comparison
    assert len(ledger.acknowledged) == len(lab.messages) == 200
    assert (lab.hops[0].counters.connections == 200) == (not keep_alive)


async def test_big_messages_arrive_unaltered() -> None:
    corpus = Corpus(count=10, seed=2, big=2)
    assert sorted(message.size_bytes for message in corpus)[-2] > 10_000_000
    ledger, lab, _ = await sent_through("accept", corpus, sessions=2)
    assert compare(ledger, lab.messages).clean
    assert max(arrival.size_bytes for arrival in lab.messages) > 28_000_000


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize(
    "behaviour",
    [
        "rst(final, 0.2)",
        "close(data, 0.2)+rst(body, 0.1)",
        "reject(0.2, 451, final)",
        "reject(0.2, 450, mail)+reject(0.2, 452)+reject(0.1, 421, ehlo)",
        "limit(3)",
    ],
)
async def test_failures_are_tried_again_until_all_is_acknowledged(behaviour: str, pipelining: bool) -> None:
    corpus = Corpus(count=100, seed=4)
    ledger, lab, _ = await sent_through(behaviour, corpus, pipelining=pipelining, pause_s=0.001)
    comparison = compare(ledger, lab.messages)
    assert comparison.clean, comparison
    wanted = {recipient for message in corpus for recipient in message.recipients}
    assert {recipient for entry in ledger.acknowledged for recipient in entry.recipients} == wanted


@pytest.mark.parametrize(("stage", "state"), [("final", State.IN_DOUBT), ("data", State.SENDING)])
async def test_what_lost_its_connection_is_in_doubt_only_behind_the_final_dot(stage: str, state: State) -> None:
    ledger, _, client = await sent_through(f"rst({stage}, 0.5)", Corpus(count=50, seed=8), pause_s=0.001)
    assert client.lost_connections > 0
    assert len(ledger.of(state)) == client.lost_connections
    assert len(ledger.sent) == 50 + client.lost_connections


async def test_a_permanent_refusal_is_not_tried_again() -> None:
    ledger, lab, _ = await sent_through("reject(1, 554, final)", Corpus(count=10, seed=5))
    assert len(ledger.of(State.REFUSED)) == len(ledger.sent) == 10
    assert lab.messages == []


async def test_every_fault_shows_in_the_comparison() -> None:
    ledger, lab, _ = await sent_through("accept", Corpus(count=20, seed=6))
    first, second, third, *rest = lab.messages
    other = msgspec.structs.replace

    lost = compare(ledger, [second, third, *rest])
    assert {pair[0] for pair in lost.missing} == {first.id or first.sender.partition("@")[0]}
    assert lost.lost
    partly = next(arrival for arrival in lab.messages if len(arrival.recipients) > 1)
    others = [arrival for arrival in lab.messages if arrival is not partly]
    short = compare(ledger, [other(partly, recipients=partly.recipients[1:]), *others])
    assert [pair[1] for pair in short.missing] == [partly.recipients[0]]

    twice = compare(ledger, [*lab.messages, first])
    assert (twice.repeated, twice.duplicates.total(), twice.lost) == (1, len(first.recipients), False)
    assert not twice.clean

    changed = compare(ledger, [other(first, sha256="0" * 64), second, third, *rest])
    assert len(changed.altered) == 1
    assert len(changed.missing) == len(first.recipients)

    assert len(compare(ledger, [*lab.messages, other(first, id="unknown")]).strangers) == 1
    assert len(compare(ledger, [*lab.messages, other(first, recipients=("x@example.org",))]).strangers) == 1

    entry = ledger.sent[second.id or second.sender.partition("@")[0]]
    for state, field in ((State.SENDING, "unfinished"), (State.DEFERRED, "refused"), (State.IN_DOUBT, "doubtful")):
        entry.state = state
        assert getattr(compare(ledger, lab.messages), field)


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("size", [200, 5_000, 70_000])
def test_a_shape_is_the_same_each_time_and_has_no_bare_newline(shape: str, size: int) -> None:
    message = Message(1, shape, size, ("b@example.org",), eight_bit=False, seed=size)
    data = message.data("id1")
    assert data == message.data("id1")
    assert b"\0" not in data
    clean = data.replace(b"\r\n", b"")
    assert b"\r" not in clean
    assert b"\n" not in clean
    assert (content_digest(data) == content_digest(message.data("id2"))) == (message.shape == "headless")


@pytest.mark.parametrize(
    ("data", "wire"),
    [
        (b"", b""),
        (b"a", b"a\r\n"),
        (b".", b"..\r\n"),
        (b"a\r\n.\r\n..b", b"a\r\n..\r\n...b\r\n"),
    ],
)
def test_dots_are_stuffed(data: bytes, wire: bytes) -> None:
    assert stuffed(data) == wire


def test_a_corpus_is_mixed_and_the_same_for_the_same_seed() -> None:
    corpus = Corpus(count=5_000, seed=7, big=20)
    messages = list(corpus)
    assert messages == list(corpus)
    sizes = sorted(message.size_bytes for message in messages)
    assert sum(size > 10_000_000 for size in sizes) == 20
    assert sizes[-1] == 30_000_000
    assert sizes[0] < 300
    assert {message.shape for message in messages} == set(SHAPES)
    assert max(len(message.recipients) for message in messages) == 60
