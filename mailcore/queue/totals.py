"""The totals of the balance over a restart: what the last checkpoint counted, and what the journal says since.

Law: the totals are exact, or begin again and say why. They are taken in the same turn as the restart positions, which say up to
where in the journal and in each lane everything is counted. A start adds the verdicts and ends that the journal has above that
place, and the mail in receivers' lanes that its STARTs prove; other mail above the ends of these lanes is counted when it
becomes readable. A record that the start does not believe is not counted: what it did is done and counted again. Totals that do
not fit the queue, or may not, are not continued.

Keeps law: totals-continue (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mailcore.balance import Scope, difference
from mailcore.envelope import Origin, Status
from mailcore.log.positions import Pair, RestartPositions, Totals
from mailcore.queue.fold import Folded, Known
from mailcore.queue.lanes import DELETED
from mailcore.queue.sizes import Sizes

__all__ = ["plus", "terms", "totals_at_start"]


def totals_at_start(
    stored: RestartPositions,
    folded: Folded,
    finished: Iterable[Known],
    sizes: Sizes,
    now: float,
    *,
    believed: bool,
    restored_at: float,
    arrived: Pair = (0, 0),
) -> tuple[Totals, bool]:
    """Returns the totals as of the end of a recovery, and whether they began before. Sets what ``sizes`` lost before.

    ``stored``: the restart positions that were read. ``finished``: the messages whose FINISH was believed. ``arrived``: mail
    in receivers' lanes that the journal proves to lie above their stored ends. ``believed``: the positions are the newest ones,
    and the journal did not prove more of the manager's lanes. ``restored_at``: when the queue was restored from a backup; 0.0
    if it never was.
    """
    size = sizes.summary()
    queued = (size.messages, size.recipients)
    before = stored.totals
    if before is None:
        note = "an earlier version kept no counts"
        if not stored.sequence:  # the queue is new, or its positions were rebuilt from the files
            note = "the restart positions were lost" if stored.lanes or stored.journal_end else ""
        return Totals(now, note, queued), False
    if not believed:
        return Totals(now, "restart positions were damaged", queued), False
    if restored_at > before.since:
        return Totals(now, "the queue was restored from a backup", queued), False
    verdicts = {status: before.by_status.get(status, 0) + folded.verdicts.get(status, 0) for status in Status}
    over = [known for known in finished if known.ended_at >= stored.journal_end and known.place.lane != DELETED]
    ended = len(over) + folded.passed[0]
    accepted = plus(before.accepted.get(Origin.SMTP, (0, 0)), plus(folded.passed, arrived))
    totals = msgspec.structs.replace(
        before,
        undeleted=plus(before.undeleted, (0, sum(known.deleted for known in over))),  # and returned to the sender
        finished=before.finished + ended,
        by_status=verdicts,
        accepted={**before.accepted, Origin.SMTP: accepted} if accepted[0] else before.accepted,
    )
    for scope, amounts in terms(totals, queued).items():
        if differing := difference(scope, amounts):
            note = f"the counts before did not fit the queue: a difference of {differing} {scope.value}"
            return Totals(now, note, queued), False
    sizes.lost = list(totals.lost)
    return totals, True


def terms(totals: Totals, queued: Pair) -> dict[Scope, dict[str, int]]:
    """Returns the terms of both balances (``mailcore.balance``). ``queued``: messages and recipients, now."""
    accepted = (sum(pair[0] for pair in totals.accepted.values()), sum(pair[1] for pair in totals.accepted.values()))
    by_status = totals.by_status
    return {
        Scope.RECIPIENTS: {
            "queued_at_start": totals.at_start[1],
            "accepted": accepted[1] + totals.added,
            "undeleted": totals.undeleted[1],
            "delivered": by_status.get(Status.DELIVERED, 0),
            "bounced": by_status.get(Status.BOUNCED, 0),
            "expired": by_status.get(Status.EXPIRED, 0),
            "deleted": totals.deleted[1],
            "lost": totals.lost[1],
            "queued": queued[1],
        },
        Scope.MESSAGES: {
            "queued_at_start": totals.at_start[0],
            "accepted": accepted[0],
            "undeleted": totals.undeleted[0],
            "finished": totals.finished,
            "deleted": totals.deleted[0],
            "lost": totals.lost[0],
            "queued": queued[0],
        },
    }


def plus(one: Pair, other: Pair) -> Pair:
    """Returns the sum of two pairs of messages and recipients."""
    return one[0] + other[0], one[1] + other[1]
