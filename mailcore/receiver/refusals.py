"""Refusals on their way into the log and the lane: bounded, because anyone on the network can cause them.

Laws
- Recording costs the disk less than mail would: at most RATE records a second over time, each of bounded size; those
  beyond are counted, and the count is logged.
- A record has no sync of its own: it goes with the next mail, or with others after FLUSH_S. In any case it is reported
  to the manager after FLUSH_S: what was not reported to it is in no report.

Keeps law: refusals-bounded (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from mailcore.log.commit import GroupCommit
from mailcore.log.lane import LaneFailed
from mailcore.log.record import RecordType
from mailcore.maillog import MailLog
from mailcore.queue.records import Refused, encode
from mailcore.receiver.intake import Refusal

__all__ = ["Allowance", "Refusals"]

RATE = 50.0  # records a second, at most 700 bytes each: 35 kB/s, less than nine messages of 4 kB
BURST = 1_000  # at once: a spam run's first second is worth seeing whole
FLUSH_S = 5.0  # reports are made from sealed segments, so there is no hurry
LOG_FLUSH_S = 0.1
TEXT_MAX = 256  # characters of each text of a record; RFC 5321 4.5.3.1.3 for a path


class Allowance:
    """A rate per second with a burst (a token bucket). ``over`` counts what was beyond it."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._at = now
        self.over = 0

    def taken(self, now: float) -> bool:
        """Takes one unit of the allowance at ``now`` (monotonic seconds); returns False if it is used up."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1.0:
            self.over += 1
            return False
        self._left -= 1.0
        return True


class Refusals:
    """Writes refusals. ``clock`` is wall-clock seconds; ``durable`` gets the end of what was synced, ``failed`` an error."""

    def __init__(
        self,
        commit: GroupCommit,
        log: MailLog,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        durable: Callable[[int], None],
        failed: Callable[[LaneFailed], None],
    ) -> None:
        self._commit = commit
        self._log = log
        self._loop = loop
        self._clock = clock
        self._durable = durable
        self._failed = failed
        self._allowance = Allowance(RATE, BURST, loop.time())
        self.counted: Callable[[str], None] | None = (
            None  # counts each reply for the metrics, also those beyond the allowance
        )
        self.disk_full = False  # the reserve is for deliveries: refusals are only counted
        self._flush_timer: asyncio.TimerHandle | None = None
        self._log_timer: asyncio.TimerHandle | None = None

    def record(self, refusal: Refusal) -> None:
        """Writes a refusal into the mail log and the lane, if the allowance has room for it."""
        if self.counted is not None:
            self.counted(refusal.reply)
        if self._log_timer is None:
            self._log_timer = self._loop.call_later(LOG_FLUSH_S, self._flush_log)
        if self.disk_full:
            self._allowance.over += 1
            return
        if not self._allowance.taken(self._loop.time()):
            return
        stage, reply, address, helo, sender, recipient, tls, protocol, queue_id, client_name, milter = refusal
        self._log.refused(
            stage,
            reply,
            address,
            client_name=client_name or "unknown",
            sender=sender,
            recipient=recipient,
            helo=helo,
            protocol=protocol,
            queue_id=queue_id or "NOQUEUE",
            milter=milter,
        )
        body = Refused(
            at=self._clock(),
            stage=stage,
            reply=reply[:TEXT_MAX],
            client_address=address,
            helo=helo[:TEXT_MAX],
            sender=_storable(sender),
            recipient=_storable(recipient),
            tls=tls,
        )
        try:
            self._commit.append(RecordType.REFUSED, encode(body))
        except LaneFailed:  # mail is being refused for the same reason, and that is in the log
            return
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._commit.then(functools.partial(self._flushed, self._commit.writer.end))

    def _flushed(self, end: int, error: LaneFailed | None) -> None:
        if error is None:
            self._durable(end)
        else:
            self._failed(error)

    def _flush_log(self) -> None:
        self._log_timer = None
        over, self._allowance.over = self._allowance.over, 0
        if over:
            self._log.refusals_not_recorded(over)
        self._log.flush()

    def close(self) -> None:
        """Stops the timers, for tests."""
        for timer in (self._flush_timer, self._log_timer):
            if timer is not None:
                timer.cancel()


def _storable(text: str | None) -> str:
    """Returns the text, shortened and valid in UTF-8, which is all that MessagePack stores."""
    return (text or "")[:TEXT_MAX].encode("utf-8", "replace").decode()
