"""One writing process of a shard and its row: does what ``writer_state`` decides. A thread calls it, and may wait in it.

``commit`` returns when the batch is done, and raises only when it is certain that it is not. In between it connects again and
asks, for as long as it takes: a client that waits is answered by another thread, which looks at ``waiting_since``.

Keeps law: replicated-before-done, law: unknown-until-own-write (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from mailcore.faults import Fault
from mailcore.replication.batch import Batch, Ends, decode_ends, encode_ends
from mailcore.replication.connection import Answer, Connection
from mailcore.replication.faults import BackInTime, Fenced, Lost, NotReached, ServerError, StoreRefused
from mailcore.replication.guarantees import Findings, open_checked
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.statements import ASK, BEGIN, LOOK
from mailcore.replication.values import as_bool, as_int
from mailcore.replication.writer_state import Outcome, Step, WriterState

__all__ = ["Begun", "Opener", "Stopped", "StoreWriter", "is_transient"]

Opener = Callable[[StoreParameters], tuple[Connection, Findings]]

# Classes and codes of PostgreSQL's appendix A after which the same statement may succeed: a deadlock or a conflict of
# transactions; a statement that an administrator cancelled before it committed; a lock that was not given in time.
_AGAIN = ("40", "57014", "55P03")
# The server became a standby, or is stopping: another connection may find the primary.
_ELSEWHERE = ("25006", "57P")


def is_transient(error: ServerError) -> bool:
    """Returns True if the statement changed nothing and the same statement may succeed."""
    return error.sqlstate.startswith(_AGAIN)


class Stopped(Exception):
    """Raised in the thread of a writer that is to stop. Only tests stop one: the daemon is killed."""


@dataclass(frozen=True)
class Begun:
    """The row of a writer that has begun."""

    incarnation: int
    n: int
    ends: Ends


class StoreWriter:
    """The only writer of its row, for one epoch."""

    def __init__(
        self,
        parameters: StoreParameters,
        shard: str,
        name: str,
        epoch: int,
        *,
        opener: Opener = open_checked,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shard = shard
        self.name = name
        self.epoch = epoch
        self.state = WriterState()
        self.waiting_since: float | None = None  # by ``clock``; None: nothing is under way
        self.fault: Fault | None = None  # why it is waiting, for people; None: nothing is known to be wrong
        self.stopping = Event()
        self.parameters = parameters
        self._opener = opener
        self._clock = clock
        self._connection: Connection | None = None
        self._batch = Batch()
        self._ends = b""
        self._begun_ends = b""
        self._refusal: ServerError | None = None
        self._failures = 0  # attempts to connect that failed in a row
        self._time_outs = 0  # statements in a row without an answer that counts

    def begin(self) -> Begun:
        """Raises the incarnation, and returns the row. Raises StoreRefused for a database that must not be used, Fenced."""
        self._run(lambda: bool(self.state.incarnation), refusing=True)
        return Begun(self.state.incarnation, self.state.n, decode_ends(self._begun_ends))

    def commit(self, batch: Batch, ends: Ends) -> int:
        """Commits a batch, and returns its number.

        Raises ServerError if the database refused it: it is not there, and never will be. Raises Fenced, BackInTime.
        """
        self.state.take()
        self._batch, self._ends = batch, encode_ends(ends)
        self._refusal = None
        self._run(lambda: self.state.outcome is not Outcome.UNDER_WAY)
        if self.state.outcome is Outcome.REFUSED:
            assert self._refusal is not None
            raise self._refusal
        return self.state.n

    def waiting_s(self) -> float:
        """Returns for how long the call under way has lasted; 0.0 if there is none. For other threads."""
        since = self.waiting_since
        return 0.0 if since is None else self._clock() - since

    def close(self) -> None:
        """Closes the socket."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, is_over: Callable[[], bool], *, refusing: bool = False) -> None:
        self.waiting_since = self._clock()
        try:
            while not is_over():
                if self.stopping.is_set():
                    raise Stopped
                self._take_step(refusing)
        finally:
            self.waiting_since = None

    def _take_step(self, refusing: bool) -> None:
        step = self.state.step
        if step is Step.END:
            self.close()
            if self.state.back_in_time:
                raise BackInTime(
                    f"The database has less of writer {self.name} of shard {self.shard} than it once confirmed."
                )
            raise Fenced(
                f"Writer {self.name} of shard {self.shard} is not ours any more: another process or owner has begun."
            )
        if step is Step.CONNECT:
            self._connect(refusing)
            return
        assert self._connection is not None
        try:
            if step is Step.LOOK:
                self._look()
            elif step is Step.BEGIN:
                self._begin()
            elif step is Step.COMMIT:
                self._commit()
            else:
                self._ask()
        except Lost as error:
            self._lose(error.fault)
        except ServerError as error:
            if error.sqlstate.startswith(_ELSEWHERE):
                self._lose(error.fault)
            elif step is Step.COMMIT and not is_transient(error):
                self._refusal = error
                self.state.was_refused()
            else:  # this statement did nothing; the next one may
                self._pause()

    def _connect(self, refusing: bool) -> None:
        try:
            self._connection, _ = self._opener(self.parameters)
        except (NotReached, Lost, ServerError, StoreRefused) as error:
            if refusing and isinstance(error, StoreRefused):
                raise
            self.fault = error.fault
            self.state.is_lost()
            self._pause()
            return
        self.state.is_connected()

    def _look(self) -> None:
        assert self._connection is not None
        answer = self._connection.execute(LOOK, [self.shard, self.name, self.epoch], self._timeout_s())
        if answer.rows:
            self.state.has_looked(as_int(answer.rows[0][0]))
        else:
            self.state.is_fenced()

    def _begin(self) -> None:
        assert self._connection is not None
        parameters = [self.shard, self.name, self.epoch, self.state.seen]
        answer = self._connection.execute(BEGIN, parameters, self._timeout_s())
        if not answer.rows:
            self.state.has_not_begun()
        elif self._counts(answer, 3):
            incarnation, n, ends, _ = answer.rows[0]
            self._begun_ends = ends or b""
            self.state.has_begun(as_int(incarnation), as_int(n))

    def _commit(self) -> None:
        assert self._connection is not None
        state = self.state
        statement, parameters = self._batch.statement(
            self.shard, self.name, self.epoch, state.incarnation, state.n + 1, self._ends
        )
        answer = self._connection.execute(statement, parameters, self._timeout_s())
        if not answer.rows:
            state.has_found_nothing()
        elif self._counts(answer, 1):
            state.has_committed()

    def _ask(self) -> None:
        assert self._connection is not None
        parameters = [self.shard, self.name, self.epoch, self.state.incarnation]
        answer = self._connection.execute(ASK, parameters, self._timeout_s())
        if not answer.rows:
            self.state.is_fenced()
        elif self._counts(answer, 1):
            self.state.was_asked(as_int(answer.rows[0][0]))

    def _counts(self, answer: Answer, kept_at: int) -> bool:
        """Returns True if what the statement wrote is on two servers; otherwise the outcome is unknown."""
        if answer.notices:
            self._lose(Fault(Lost.default, f"The wait for the standby was cut short: {answer.notices[0].message}"))
            return False
        if not as_bool(answer.rows[0][kept_at]):
            self._lose(
                Fault(
                    Lost.default,
                    "PostgreSQL had no synchronous standby when it committed.",
                    "synchronous_standby_names",
                )
            )
            return False
        self._time_outs = self._failures = 0
        self.fault = None
        return True

    def _lose(self, fault: Fault) -> None:
        self.fault = fault
        self._time_outs += 1
        self.close()
        self.state.is_lost()
        self._pause()

    def _timeout_s(self) -> float:
        doubled: float = self.parameters.answer_timeout_s * 2.0 ** min(self._time_outs, 16)
        return min(doubled, self.parameters.answer_timeout_s_max)

    def _pause(self) -> None:
        seconds: float = self.parameters.pause_s * 2.0 ** min(self._failures, 16)
        self._failures += 1
        self.stopping.wait(min(seconds, self.parameters.pause_s_max))
