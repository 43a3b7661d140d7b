"""The laws about outcomes, by trying everything that a database, its connections and its administrators can do.

A small database that loses connections at every point: statements that were sent may run at any later time or never, what was
committed may be visible and not yet on the standby, the standby may be promoted, the primary may crash and begin again.
``WriterState`` is the real one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailcore.replication.writer_state import Outcome, Step, WriterState

Content = tuple[int, int]  # process, number of the content


@dataclass(frozen=True)
class Row:
    """The writer's row, and the chunks of all batches."""

    epoch: int = 1
    incarnation: int = 0
    n: int = 0
    chunks: tuple[Content, ...] = ()


@dataclass(frozen=True)
class Sent:
    """A statement on its way to the server, or waiting there; ``live`` while its connection is open."""

    kind: str
    epoch: int
    incarnation: int = 0
    n: int = 0
    content: Content = (0, 0)
    seen: int = -1
    live: bool = True


@dataclass
class World:
    """One process with a writer, a primary and a standby.

    ``log`` has the states of the row; the standby has the first ``replicated`` of them.
    """

    state: WriterState = field(default_factory=WriterState)
    process: int = 1
    epoch: int = 1
    content: int = 0  # the content that is under way
    log: tuple[Row, ...] = (Row(),)
    replicated: int = 1
    sent: tuple[Sent, ...] = ()
    waiting: int = 0  # our live statement has run, and waits for so much of the log; 0: none has
    answer: tuple[int, ...] | None = None
    done: tuple[Content, ...] = ()
    refused: tuple[Content, ...] = ()
    taken_at: int = 0  # chunks when another owner took over; 0: none has
    taken: bool = False
    faults: int = 0
    batches: int = 0

    def key(self) -> object:
        state = self.state
        return (
            tuple(vars(state).items()), self.process, self.content, self.log, self.replicated, self.sent, self.waiting,
            self.answer, self.done, self.refused, self.taken, self.taken_at, self.faults, self.batches,
        )  # fmt: skip

    @property
    def row(self) -> Row:
        return self.log[-1]


def check(world: World) -> None:
    """What must hold at each moment."""
    kept = world.log[world.replicated - 1].chunks  # what a failover at this moment would leave
    assert all(each in kept for each in world.done), f"done, and not on two servers: {world.done}, {kept}"
    for row in world.log:
        assert len(set(row.chunks)) == len(row.chunks), f"a batch is there twice: {row.chunks}"
        assert not set(world.refused) & set(row.chunks), f"refused, and there: {world.refused}, {row.chunks}"
        assert len(row.chunks) == row.n, "batches have a gap"
    if world.taken:
        assert all(len(row.chunks) <= world.taken_at for row in world.log), "written behind a takeover"


def _lose(world: World) -> None:
    """Ends our connection; what was sent stays on its way."""
    world.sent = tuple(replace(each, live=False) for each in world.sent)
    world.waiting, world.answer = 0, None


def steps(world: World, batches: int, faults: int, processes: int = 2) -> Iterator[tuple[str, World]]:
    """Everything that may happen next."""

    def after(label: str) -> tuple[str, World]:
        return label, copy.deepcopy(world)

    state = world.state
    busy = any(each.live for each in world.sent) or world.waiting or world.answer is not None
    if not busy:
        step = state.step
        if state.outcome is Outcome.DONE and world.content and not state.pending:
            label, new = after("reports done")
            new.done += ((world.process, world.content),)
            new.content = 0
            new.state.outcome = Outcome.UNDER_WAY
            yield label, new
            return
        if state.outcome is Outcome.REFUSED and world.content and not state.pending:
            label, new = after("reports refused")
            new.refused += ((world.process, world.content),)
            new.content = 0
            new.state.outcome = Outcome.UNDER_WAY
            yield label, new
            return
        if step is Step.REST and world.batches < batches:
            label, new = after("takes a batch")
            new.batches += 1
            new.content = new.batches
            new.state.take()
            yield label, new
        elif step is Step.CONNECT:
            label, new = after("connects")
            new.state.is_connected()
            yield label, new
        elif step is Step.LOOK:
            label, new = after("looks")
            if world.row.epoch == world.epoch:
                new.state.has_looked(world.row.incarnation)
            else:
                new.state.is_fenced()
            yield label, new
        elif step in (Step.BEGIN, Step.COMMIT, Step.ASK):
            label, new = after(f"sends {step.value}")
            content = (world.process, world.content)
            sent = Sent(step.value, world.epoch, state.incarnation, state.n + 1, content, state.seen)
            new.sent += (sent,)
            yield label, new
            if step is Step.COMMIT and world.faults < faults:
                label, new = after("is refused: the disk of the database is full")
                new.faults += 1
                new.state.was_refused()
                yield label, new
        elif step is Step.END and not world.taken and world.process >= processes:
            raise AssertionError("ended without a takeover")
    # -- the server runs one of the statements
    for number, each in enumerate(world.sent):
        label, new = after(f"{'' if each.live else 'late '}{each.kind} runs")
        new.sent = world.sent[:number] + world.sent[number + 1 :]
        row, changed = world.row, True
        answer: tuple[int, ...] = ()
        if each.kind == "begin":
            changed = (row.epoch, row.incarnation) == (each.epoch, each.seen)
            if changed:
                row = replace(row, incarnation=row.incarnation + 1)
                answer = (row.incarnation, row.n)
        elif (row.epoch, row.incarnation) != (each.epoch, each.incarnation):
            changed = False
        elif each.kind == "ask":
            answer = (row.n,)
        elif row.n == each.n - 1:
            row = replace(row, n=each.n, chunks=(*row.chunks, each.content))
            answer = (row.n,)
        else:
            changed = False
        if changed:
            new.log += (row,)
        if each.live:
            new.answer = answer
            new.waiting = len(new.log) if changed else 0
        yield label, new
        if not each.live:
            label, new = after(f"late {each.kind} is gone")
            new.sent = world.sent[:number] + world.sent[number + 1 :]
            yield label, new
    if world.replicated < len(world.log):
        label, new = after("the standby follows")
        new.replicated += 1
        yield label, new
    # -- an answer arrives
    if world.answer is not None and world.waiting <= world.replicated:
        label, new = after("an answer arrives")
        answer, new.answer, new.waiting = world.answer, None, 0
        _hear(new.state, answer)
        yield label, new
    # -- failures
    if world.faults >= faults:
        return
    if world.answer is not None and world.waiting > world.replicated:
        label, new = after("the wait is cancelled")
        new.faults += 1
        _lose(new)
        new.state.is_lost()
        yield label, new
    if state.connected:
        label, new = after("the connection is lost")
        new.faults += 1
        _lose(new)
        new.state.is_lost()
        yield label, new
    for what in ("the standby is promoted", "the primary crashes and begins again"):
        # What was on its way to its processes ends with them. One that begins again shows what no standby has.
        label, new = after(what)
        new.faults += 1
        if what == "the standby is promoted":
            new.log = world.log[: world.replicated]
        _lose(new)
        new.sent = ()
        if state.connected:
            new.state.is_lost()
        yield label, new
    if world.process < processes:
        label, new = after("the process is killed, and begins again")
        new.faults += 1
        _lose(new)
        new.state, new.process, new.content = WriterState(), world.process + 1, 0
        yield label, new
    if not world.taken:
        label, new = after("another owner takes over")
        new.faults += 1
        new.taken, new.taken_at = True, world.row.n
        new.log += (replace(world.row, epoch=world.row.epoch + 1, incarnation=world.row.incarnation + 1),)
        new.replicated = len(new.log)  # its commit has returned
        yield label, new


def _hear(state: WriterState, answer: tuple[int, ...]) -> None:
    """Does what the shell does with an answer that counts."""
    step = state.step
    if step is Step.BEGIN:
        if answer:
            state.has_begun(*answer)
        else:
            state.has_not_begun()
    elif step is Step.COMMIT:
        if answer:
            state.has_committed()
        else:
            state.has_found_nothing()
    elif answer:
        state.was_asked(*answer)
    else:
        state.is_fenced()


def explore(batches: int, faults: int) -> tuple[int, set[str]]:
    """Every state that can be reached. Returns how many there are, and what happened in them."""
    first = World()
    seen: dict[object, tuple[object, str] | None] = {first.key(): None}
    left = [first]
    labels: set[str] = set()
    while left:
        world = left.pop()
        try:
            check(world)
            assert not world.state.back_in_time, "the database was taken for a restored one"
            following = list(steps(world, batches, faults))
        except AssertionError as error:
            path, key = [], world.key()
            while (before := seen[key]) is not None:
                key, label = before
                path.append(label)
            raise AssertionError(f"{error}: {'; '.join(reversed(path))}") from None
        for label, new in following:
            labels.add(label)
            key = new.key()
            if key not in seen:
                seen[key] = (world.key(), label)
                left.append(new)
    return len(seen), labels


def test_no_order_of_two_failures_loses_doubles_or_reorders_a_batch() -> None:
    states, labels = explore(batches=2, faults=2)
    assert states > 2_000
    assert {"late commit runs", "the standby is promoted", "the wait is cancelled", "reports refused"} <= labels


@pytest.mark.long
def test_no_order_of_three_failures_loses_doubles_or_reorders_a_batch() -> None:
    states, _ = explore(batches=2, faults=3)
    assert states > 20_000


@settings(max_examples=200)
@given(st.data())
def test_no_random_history_loses_doubles_or_reorders_a_batch(data: st.DataObject) -> None:
    """Longer ones than can be tried completely; then failures end, and each batch that was taken has an outcome."""
    world = World()
    for _ in range(120):
        check(world)
        following = list(steps(world, batches=6, faults=12, processes=4))
        if not following:
            break
        world = data.draw(st.sampled_from(following), label="step")[1]
    for _ in range(200):
        check(world)
        following = list(steps(world, batches=0, faults=0, processes=4))
        if not following:
            break
        world = following[0][1]
    assert world.state.step in (Step.REST, Step.END)
    assert not world.state.back_in_time
    assert world.state.step is Step.END or not world.content, "a batch has no outcome"
