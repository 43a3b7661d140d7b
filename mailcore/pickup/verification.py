"""A file of the maildrop that asks about addresses (``sendmail -bv``) becomes a message: the report to its author.

The report is composed, filtered and queued as any local mail. Until the answers are there, the file stays where it is, so that
a kill at any point loses no request: the addresses are asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mailcore.bounce.verified import Action, Finding, verified_report
from mailcore.config.settings import Settings
from mailcore.dsn_request import NOTIFY_NEVER
from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.pickup.dropped import VERIFY_MAX, DroppedDamaged, Submission
from mailcore.routing.address import comparable, is_mailbox

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["FINAL_MAX", "Asked", "Letter", "OpenVerifier", "Question", "Verifier", "questions", "reported"]

DAY_S = 86_400.0  # a clock that was set back may have written a later time
FINAL_MAX = 100  # addresses of one request that are asked about, after aliases


class Letter(Protocol):
    """The source of a message: a file of the maildrop, or a report."""

    @property
    def name(self) -> str:
        """Returns the file's name."""

    @property
    def uid(self) -> int:
        """Returns the file's owner."""

    @property
    def submission(self) -> Submission:
        """Returns the envelope as given."""

    @property
    def data_bytes(self) -> int:
        """Returns the size of the data."""

    def pieces(self) -> Iterator[bytes]:
        """Yields the data."""


class Asked(NamedTuple):
    """A final address to ask about; ``original`` is the one in the request, if an alias changed it, else ""."""

    address: str
    original: str = ""


class Question(NamedTuple):
    """One request. ``known`` are findings that need no question."""

    name: str  # of the file
    sender: str  # of the mail whose way is looked for
    login: str
    asked: tuple[Asked, ...]
    known: tuple[Finding, ...] = ()


class Verifier(Protocol):
    """Finds out what would become of mail for addresses. Called in a thread; does not wait."""

    def findings(self, question: Question) -> Sequence[Finding] | None:
        """Returns the findings, once; None while they are not there."""


OpenVerifier = Callable[[Settings, asyncio.AbstractEventLoop], Verifier]


@dataclass(frozen=True, slots=True)
class _Report:
    name: str
    uid: int
    submission: Submission
    data: bytes

    @property
    def data_bytes(self) -> int:
        return len(self.data)

    def pieces(self) -> Iterator[bytes]:
        yield self.data


def questions(letter: Letter, rewriting: LiveMaps | None, now: float) -> Question:
    """Returns the final addresses to ask about, as aliases and canonical addresses make them. Raises DroppedDamaged."""
    submission = letter.submission
    if len(submission.verify) > VERIFY_MAX:
        raise DroppedDamaged(f"it asks about more than {VERIFY_MAX} addresses")
    if not 0.0 <= submission.submitted_at <= now + DAY_S:  # the report shows it
        raise DroppedDamaged("its time is wrong")
    if len(submission.recipients) != 1:
        raise DroppedDamaged("its report has one reader, and it names several")
    sender = submission.recipients[0]
    asked: dict[str, Asked] = {}
    known: list[Finding] = []
    for address in dict.fromkeys(submission.verify):
        if not is_mailbox(address):
            raise DroppedDamaged(f"recipient {address!a} is not an address")
        finals: Sequence[str] = (address,)
        if rewriting is not None:
            sender, finals, why = _final(rewriting, submission, address, now)
            if why:
                known.append(Finding(address, Action.UNDELIVERABLE, "4.3.0", f"its final address is not known: {why}"))
                continue
        for final in finals:
            asked.setdefault(comparable(final), Asked(final, address if final != address else ""))
    first, beyond = list(asked.values())[:FINAL_MAX], list(asked.values())[FINAL_MAX:]
    text = f"not asked: the addresses of this request stand for more than {FINAL_MAX} addresses"
    known += [Finding(each.address, Action.UNVERIFIED, "4.0.0", text, each.original) for each in beyond]
    return Question(letter.name, sender, submission.user[:64], tuple(first), tuple(known))


def _final(rewriting: LiveMaps, submission: Submission, address: str, now: float) -> tuple[str, Sequence[str], str]:
    """Returns the canonical sender, the final addresses without copies (bcc), and why they cannot be determined."""
    envelope = Envelope(
        queue_id="",
        generation=0,
        sender=submission.recipients[0],
        recipients=(Recipient(0, address),),
        recipient_count=1,
        arrived_at=now,
        size_bytes=0,
        data=DataPlace.INLINE,
        origin=Origin.LOCAL,
    )
    rewritten, more, why = rewriting.apply(envelope, ())
    finals = [each.address for each in (*rewritten.recipients, *more) if NOTIFY_NEVER[0] not in each.options]
    return rewritten.sender, finals, why


def reported(letter: Letter, findings: Sequence[Finding], hostname: str) -> Letter:
    """Returns the report, as a message without sender to the author of the request."""
    submission = letter.submission
    data = verified_report(findings, submission.recipients[0], hostname, submission.submitted_at)
    report = Submission(
        sender="", recipients=submission.recipients[:1], submitted_at=submission.submitted_at, user=submission.user
    )
    return _Report(letter.name, letter.uid, report, data)
