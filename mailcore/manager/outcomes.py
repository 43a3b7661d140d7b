"""Counters of what happened to mail: the balance of all mail, over restarts of the manager, and the replies of destinations.

Laws
- The balance is exact, per recipient and per message: queued at the start, plus accepted and undeleted, minus delivered,
  bounced, expired, deleted and lost to damage, equals queued now. The two sides are counted separately: here by event, in
  ``Sizes`` by place.
  A checkpoint stores the counts, and ``mailcore.queue.totals`` continues them at the next start.
- The hot path costs a few additions for each entry. Memory is bounded by ``names_counted`` destinations with
  ``REPLIES_MAX`` replies each; the destination with the oldest reply is dropped first.

Keeps law: outcomes-balance (docs/laws.md).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from mailcore.balance import Scope, difference
from mailcore.destination_state import TRIES_MIN, is_failing
from mailcore.envelope import Envelope, Origin, Status, Verdict
from mailcore.log.positions import Totals
from mailcore.manager_answers import BalanceTerms, Reply
from mailcore.manager_answers import Outcomes as OutcomesAnswer
from mailcore.queue.active import Active
from mailcore.queue.aside import counts_of
from mailcore.queue.lanes import DELETED
from mailcore.queue.queue import Queue
from mailcore.queue.rewrite import numbers_used
from mailcore.queue.sizes import Amount, Sizes
from mailcore.queue.totals import plus, terms

__all__ = ["Balance", "Outcome", "Outcomes"]

REPLIES_MAX = 5  # kept for a destination: enough to see whether its replies are the same
REPLY_CHARACTERS = 300  # of a reply kept; a thousand destinations' replies are then 1.5 MB

RECENT_S = 900.0  # a try counts for as long, less and less: long enough to hold several retries of deferred mail
FADES_EVERY_S = 1.0  # tries of one second fade together: exp() for each would be a third of ``note``

_DEFERRED = int(Status.DEFERRED)
_EXPIRED = int(Status.EXPIRED)


class Balance:
    """The terms of the balance equation; a pair is [messages, recipients]."""

    def __init__(self, queue: Queue | None = None) -> None:
        """``queue``: with the totals as of the start; None counts from zero."""
        self._queue = queue
        self._before = Totals(0.0, "") if queue is None else queue.totals
        self._continued = queue is not None and queue.totals_continued
        self.late = [0, 0]  # messages, recipients that lay in a receiver's lane at the start and are counted later
        self.accepted = {origin: [0, 0] for origin in Origin}
        self.undeleted = [0, 0]
        self.deleted = [0, 0]
        self.added = 0  # recipients that operators added to queued messages
        self.finished = 0  # messages
        self.by_status = [0] * len(Status)  # recipients
        self._heard: set[str] = set()  # lanes whose receivers have reported their position

    # -- in

    def heard(self, lane: str) -> bool:
        """Notes that a receiver reported its position; returns whether it had done so before."""
        before = lane in self._heard
        self._heard.add(lane)
        return before

    def unheard(self, lanes: Iterable[str]) -> list[str]:
        """Returns those of the lanes whose receiver has not reported its position."""
        return [lane for lane in lanes if lane not in self._heard]

    def arrive(self, messages: int, recipients: int, *, heard: bool, origin: Origin = Origin.SMTP) -> None:
        """Counts mail in a receiver's lane.

        What was there before the receiver's first report counts as queued at the start of this manager. It came after the last
        checkpoint of the one before, so that totals that continue count it as accepted.
        """
        _add(self.accepted[origin] if heard else self.late, messages, recipients)

    def accept(self, envelope: Envelope) -> None:
        """Counts a message that the manager wrote: a bounce, or an injected one."""
        _add(self.accepted[envelope.origin], 1, envelope.recipient_count)

    def pass_on(self, envelope: Envelope) -> None:
        """Counts a message that was passed on while its client waited: in and out at once."""
        self.accept(envelope)
        self.by_status[Status.DELIVERED] += envelope.recipient_count
        self.finished += 1

    # -- out

    def settle(self, sizes: Sizes, active: Active, verdicts: Collection[Verdict]) -> None:
        """Counts verdicts; recipients with a final verdict leave the sizes, deferred ones stay."""
        by_status, destinations = self.by_status, active.destinations
        done = 0
        for verdict in verdicts:
            status = verdict.status
            by_status[status] += 1
            destination = destinations.get(verdict.number, "")
            if destination:
                sizes.route(destination, -1)
            if status != _DEFERRED:
                done += 1
        if done:
            active.remaining -= done
            sizes.work(active.lane, 0, -done)

    def replace(self, active: Active, lane: str, replacement: Envelope) -> None:
        """Counts a message that moved to ``lane``: it may be deleted or undeleted there, or have more recipients."""
        self.added += numbers_used(replacement) - numbers_used(active.envelope)
        before = active.remaining if active.lane == DELETED else active.deleted
        counted, deleted = counts_of(replacement, lane)
        after = counted if lane == DELETED else deleted
        if lane == DELETED != active.lane:
            self.deleted[0] += 1
        elif active.lane == DELETED != lane:
            self.undeleted[0] += 1
        self.deleted[1] += max(after - before, 0)
        self.undeleted[1] += max(before - after, 0)

    def finish(self, active: Active) -> None:
        """Counts the end of a message."""
        if active.lane != DELETED:  # a deleted message was counted when it was deleted
            self.finished += 1
            self.undeleted[1] += active.deleted  # they were undeleted and then returned to the sender

    # -- answers

    def counters(self, *, over_restarts: bool = False) -> dict[str, int]:
        """Returns the counters since the manager started, or since the totals began; none of them ever decreases."""
        counted = self._total(self.by_status) if over_restarts else self._since_start(self.by_status)
        accepted = counted.accepted.values()
        return {
            "accepted": sum(messages for messages, _ in accepted),
            "recipients_accepted": sum(recipients for _, recipients in accepted) + counted.added,
            "recipients_added": counted.added,
            **{
                f"recipients_{each.name.lower()}": counted.by_status.get(each, 0)
                for each in Status
                if each != Status.DELETED
            },
            "recipients_deleted": counted.deleted[1],
            "recipients_undeleted": counted.undeleted[1],
            "recipients_lost": counted.lost[1],  # after a start, less until it finds again what it cannot read
            "messages_finished": counted.finished,
            "messages_deleted": counted.deleted[0],
            "messages_undeleted": counted.undeleted[0],
        }

    def by_origin(self) -> dict[str, Amount]:
        """Returns accepted messages and recipients by origin."""
        return {
            origin.name.lower(): Amount(messages=messages, recipients=recipients)
            for origin, (messages, recipients) in self.accepted.items()
        }

    def terms(self, queued_messages: int, queued_recipients: int) -> BalanceTerms:
        """Returns the terms of both balances since the totals began; a ``difference`` other than 0 is a fault."""
        found = terms(self._total(self.by_status), (queued_messages, queued_recipients))
        for scope, amounts in found.items():
            amounts["difference"] = difference(scope, amounts)
        return BalanceTerms(recipients=found[Scope.RECIPIENTS], messages=found[Scope.MESSAGES])

    # -- totals, over restarts

    def totals(self) -> Totals:
        """Returns what a checkpoint stores: with the verdicts whose records are appended and not synced yet."""
        assert self._queue is not None
        sizes = self._queue.sizes
        lost = (sizes.lost[0] - sizes.lost_working[0], sizes.lost[1] - sizes.lost_working[1])
        return msgspec.structs.replace(self._total(self._queue.verdicts), lost=lost)

    def _total(self, by_status: Sequence[int]) -> Totals:
        before, since = self._before, self._since_start(by_status)
        accepted = {origin: plus(before.accepted.get(origin, (0, 0)), pair) for origin, pair in since.accepted.items()}
        late = (self.late[0], self.late[1])
        if self._continued:
            accepted[Origin.SMTP] = plus(accepted[Origin.SMTP], late)
        return Totals(
            before.since,
            before.note,
            before.at_start if self._continued else plus(before.at_start, late),
            accepted,
            before.added + since.added,
            plus(before.undeleted, since.undeleted),
            plus(before.deleted, since.deleted),
            before.finished + since.finished,
            {status: before.by_status.get(status, 0) + count for status, count in since.by_status.items()},
            plus(before.lost, since.lost),
        )

    def _since_start(self, by_status: Sequence[int]) -> Totals:
        lost, before = (0, 0) if self._queue is None else self._queue.sizes.lost, self._before.lost
        return Totals(
            0.0,
            "",
            accepted={int(origin): (messages, recipients) for origin, (messages, recipients) in self.accepted.items()},
            added=self.added,
            undeleted=(self.undeleted[0], self.undeleted[1]),
            deleted=(self.deleted[0], self.deleted[1]),
            finished=self.finished,
            by_status=dict(enumerate(by_status)),
            lost=(lost[0] - before[0], lost[1] - before[1]),
        )


def _add(pair: list[int], messages: int, recipients: int) -> None:
    pair[0] += messages
    pair[1] += recipients


class Outcome:
    """Verdicts and newest replies of one destination."""

    __slots__ = (
        "by_status",
        "by_status_of_transport",
        "deferred_at",
        "last_delivered_at",
        "recent_at",
        "recent_delivered",
        "recent_tries",
        "replies",
    )

    def __init__(self, by_status_of_transport: list[int] | None = None) -> None:
        """``by_status_of_transport`` is shared by all destinations of a transport."""
        self.by_status = [0] * len(Status)
        self.by_status_of_transport = by_status_of_transport or [0] * len(Status)
        self.last_delivered_at: float | None = None
        self.deferred_at: float | None = None  # the last time
        self.recent_at = 0.0  # as of when the next two are; both fade with RECENT_S
        self.recent_tries = 0.0
        self.recent_delivered = 0.0
        self.replies: dict[tuple[int, str], list[Any]] = {}  # (status, reply) -> [at, dsn, relay, times], newest last

    def tried(self, tries: int, delivered: int, at: float) -> None:
        """Counts recipients that were tried, among those of the last minutes."""
        if 0.0 <= at - self.recent_at < FADES_EVERY_S:
            self.recent_tries += tries
            self.recent_delivered += delivered
            return
        fading = self._fading(at)
        self.recent_at = at
        self.recent_tries = self.recent_tries * fading + tries
        self.recent_delivered = self.recent_delivered * fading + delivered

    def failing(self, now: float, *, queued: bool) -> bool:
        """Returns whether the destination does not take its mail. ``queued``: mail waits for it."""
        return is_failing(
            tries=self.recent_tries * self._fading(now),
            share=self._recent_share(now),
            queued=queued,
            deferred_at=self.deferred_at,
            delivered_at=self.last_delivered_at,
        )

    def _fading(self, now: float) -> float:
        return math.exp(min((self.recent_at - now) / RECENT_S, 0.0))  # a clock that is set back fades nothing

    def _recent_share(self, now: float) -> float | None:
        enough = self.recent_tries * self._fading(now) >= TRIES_MIN
        return self.recent_delivered / self.recent_tries if enough else None

    def answer(self, now: float) -> OutcomesAnswer:
        """Returns the counts and the newest replies."""
        delivered, deferred, bounced = (self.by_status[s] for s in (Status.DELIVERED, Status.DEFERRED, Status.BOUNCED))
        tried = delivered + deferred + bounced
        return OutcomesAnswer(
            delivered=delivered,
            deferred=deferred,
            bounced=bounced,
            expired=self.by_status[Status.EXPIRED],
            success_share=delivered / tried if tried else None,
            recent_share=self._recent_share(now),
            last_delivered_at=self.last_delivered_at,
            last_replies=[
                Reply(at=at, reply=reply, status=Status(status).name.lower(), dsn=dsn, relay=relay, times=n)
                for (status, reply), (at, dsn, relay, n) in reversed(self.replies.items())
            ],
        )


NOTHING = Outcome()  # of a destination without any reply so far


class Outcomes:
    """The outcomes of up to ``names_max`` destinations."""

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._known: OrderedDict[str, Outcome] = OrderedDict()  # the newest reply is last
        self._transports: dict[str, list[int]] = {}  # as many as there are in the settings

    def note(self, destination: str, verdicts: Collection[Verdict], relay: str, at: float) -> None:
        """Counts the verdicts of one transaction. This is on the hot path."""
        known = self._known
        outcome = known.get(destination)
        if outcome is None:
            transport = self._transports.setdefault(destination.partition(":")[0], [0] * len(Status))
            outcome = known[destination] = Outcome(transport)
            if len(known) > self._names_max:
                known.popitem(last=False)
        else:
            known.move_to_end(destination)
        by_status, of_transport = outcome.by_status, outcome.by_status_of_transport
        tries, delivered = len(verdicts), 0
        for verdict in verdicts:
            status = verdict.status
            by_status[status] += 1
            of_transport[status] += 1
            if status == 0:  # DELIVERED; the member itself would cost ten times as much here
                outcome.last_delivered_at = at
                delivered += 1
            else:
                if status == _DEFERRED:
                    outcome.deferred_at = at
                elif status == _EXPIRED:  # it was deferred before, and counted as a try then
                    tries -= 1
                _keep(outcome.replies, verdict, relay, at)
        if tries:
            outcome.tried(tries, delivered, at)

    def of(self, destination: str, now: float) -> OutcomesAnswer:
        """Returns the outcomes of a destination; for "smtp:user@next hop", those of its next hop."""
        return self._outcome(destination).answer(now)

    def by_transport(self) -> dict[str, dict[str, int]]:
        """Returns the recipients by transport and status, since the process started; also of destinations forgotten since."""
        return {
            name: {status.name.lower(): counts[status] for status in Status if status is not Status.DELETED}
            for name, counts in self._transports.items()
        }

    def failing(self, destination: str, now: float, *, queued: bool) -> bool:
        """Returns whether a destination does not take its mail. ``queued``: mail waits for it."""
        return self._outcome(destination).failing(now, queued=queued)

    def _outcome(self, destination: str) -> Outcome:
        outcome = self._known.get(destination)
        if outcome is None and "@" in destination:
            outcome = self._known.get(f"{destination.partition(':')[0]}:{destination.rpartition('@')[2]}")
        return outcome or NOTHING

    def latest(self, count: int) -> list[str]:
        """Returns the ``count`` destinations with the newest replies, newest first."""
        return [name for name, _ in zip(reversed(self._known), range(count), strict=False)]


def _keep(replies: dict[tuple[int, str], list[Any]], verdict: Verdict, relay: str, at: float) -> None:
    key = (int(verdict.status), verdict.reply[:REPLY_CHARACTERS])
    before = replies.pop(key, None)
    if before is None and len(replies) >= REPLIES_MAX:
        del replies[next(iter(replies))]
    replies[key] = [at, verdict.dsn, relay, 1 if before is None else before[3] + 1]
