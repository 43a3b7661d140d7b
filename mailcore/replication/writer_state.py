"""The state of a writer, and its next step: the laws about outcomes, without I/O, clock or thread.

The shell (``writer.py``) asks for the ``step``, does it, and reports what came of it. One batch is under way at a time.

- law: batches-without-gaps. Batch n is accepted only after n - 1, and a number has one content for as long as an attempt to
  commit it may still arrive.
- law: replicated-before-done. A batch is done when its commit has returned without a notice, from a server that waits for a
  standby.
- law: unknown-until-own-write. An outcome that is not known stays so until a write of this writer on its own row, over a new
  connection, has returned in that way.
- law: fenced-by-its-row. A writer whose row has another epoch or incarnation has ended.

BEGIN names the incarnation that it has seen, so that one of a process that is dead, and that arrives late, ends no other.

A batch that was refused after an attempt whose outcome was unknown is given up only behind a new incarnation: the earlier
attempt may still arrive, and the number would get another content.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Outcome", "Step", "WriterState"]


class Step(enum.Enum):
    """The next thing that the shell has to do."""

    CONNECT = "connect"
    LOOK = "look"  # which incarnation the row has
    BEGIN = "begin"
    COMMIT = "commit"
    ASK = "ask"
    REST = "rest"  # there is nothing to do
    END = "end"  # the writer has ended


class Outcome(enum.Enum):
    """The fate of the batch that was taken."""

    UNDER_WAY = "under_way"
    DONE = "done"
    REFUSED = "refused"  # it is not in the database, and never will be


@dataclass
class WriterState:
    """The state of one writer of one epoch. ``n`` is the last batch that is done."""

    n: int = 0
    incarnation: int = 0  # 0: not begun, or to be begun again
    seen: int = -1  # the incarnation that BEGIN will raise; -1: it has to be looked for
    connected: bool = False
    pending: bool = False  # batch n + 1 is taken
    unknown: bool = False  # an attempt to commit it has an outcome that is not known
    attempted: bool = False  # an attempt that was unknown once may still arrive
    given_up: bool = False  # the batch was refused; a new incarnation decides whether an attempt had arrived before
    begun: bool = False
    fenced: bool = False
    back_in_time: bool = False
    outcome: Outcome = Outcome.UNDER_WAY

    @property
    def step(self) -> Step:
        """Returns what is to be done next."""
        if self.fenced or self.back_in_time:
            return Step.END
        if not self.incarnation or self.pending:
            if not self.connected:
                return Step.CONNECT
            if not self.incarnation:
                return Step.LOOK if self.seen < 0 else Step.BEGIN
            return Step.ASK if self.unknown else Step.COMMIT
        return Step.REST

    def take(self) -> None:
        """Takes a batch: number n + 1."""
        assert not self.pending, "a batch is under way"
        self.pending = True
        self.outcome = Outcome.UNDER_WAY

    def is_connected(self) -> None:
        """Notes a new connection."""
        self.connected = True

    def is_lost(self) -> None:
        """Notes that a step has no answer that counts: no connection, a time-out, a notice, or a server without a standby."""
        if self.connected and self.pending and self.incarnation and not self.given_up:
            self.unknown = self.attempted = True
        self.connected = False
        self.seen = -1

    def has_looked(self, incarnation: int) -> None:
        """Notes the answer to LOOK: the incarnation of the row; 0 if there is no row yet."""
        self.seen = incarnation

    def has_not_begun(self) -> None:
        """Notes that BEGIN changed no row: it has another incarnation by now, or another epoch."""
        self.seen = -1

    def has_begun(self, incarnation: int, n: int) -> None:
        """Notes the answer to BEGIN: the row as it is now. No statement of the predecessor will change it."""
        if n < self.n:
            self.back_in_time = True
            return
        if self.begun and self.pending and n == self.n + 1:
            self._end(Outcome.DONE)  # an attempt of ours had arrived
        elif self.begun and n != self.n:
            self.back_in_time = True  # a number that was never given out here
            return
        elif self.given_up:
            self._end(Outcome.REFUSED)
        self.n = n
        self.incarnation = incarnation
        self.unknown = self.attempted = False
        self.begun = True
        self.seen = -1

    def is_fenced(self) -> None:
        """Notes that LOOK or ASK found no row of ours."""
        self.fenced = True

    def has_committed(self) -> None:
        """Notes that COMMIT returned its number."""
        self._end(Outcome.DONE)
        self.n += 1

    def has_found_nothing(self) -> None:
        """Notes that COMMIT changed no row: another process has the row, or an earlier attempt has arrived."""
        self.unknown = True

    def was_asked(self, n: int) -> None:
        """Notes the answer to ASK."""
        if n == self.n + 1:
            self.has_committed()
        elif n == self.n:
            self.unknown = False  # the same batch again
        else:
            self.back_in_time = True

    def was_refused(self) -> None:
        """Notes that the server answered COMMIT with an error that it would give again."""
        if self.attempted:
            self.given_up = True
            self.incarnation = 0
        else:
            self._end(Outcome.REFUSED)

    def _end(self, outcome: Outcome) -> None:
        self.pending = self.unknown = self.attempted = self.given_up = False
        self.outcome = outcome
