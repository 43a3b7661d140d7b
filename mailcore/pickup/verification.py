"""A file of the maildrop that asks about addresses (``sendmail -bv``) becomes a message: the report to its author.

The report is queued as local mail is, but passes no header checks and no milters, as other mail of our own making. Until the
answers are there, the file stays where it is, so that a kill at any point loses no request: the addresses are verified again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mailcore.bounce.verified import Action, Finding, verified_report
from mailcore.config.settings import Settings
from mailcore.dsn_request import NOTIFY_NEVER
from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.pickup.dropped import DroppedDamaged, Submission
from mailcore.routing.address import comparable, is_mailbox
from mailcore.routing.resolve import Routing

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["Asked", "Letter", "OpenVerifier", "Question", "Verifier", "questions", "reported"]

DAY_S = 86_400.0  # a clock that was set back may have written a later time


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
    """One request. ``known`` are findings that need no question; ``more``: how many further addresses are beyond the bound."""

    sender: str  # of the mail whose way is looked for
    login: str
    asked: tuple[Asked, ...]
    known: tuple[Finding, ...] = ()
    more: int = 0


class Verifier(Protocol):
    """Finds out what would become of mail for addresses."""

    def begin(self, question: Question) -> Future[list[Finding]]:
        """Begins to look, and does not wait. Called in a thread."""


OpenVerifier = Callable[[Settings, asyncio.AbstractEventLoop, Callable[[], Routing]], Verifier]
"""Opens the one of this process: (settings, loop, routing); ``routing`` returns the routing in use."""


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


def questions(letter: Letter, rewriting: LiveMaps | None, addresses_max: int, now: float) -> Question:
    """Returns the final addresses to ask about, as aliases and canonical addresses make them. Raises DroppedDamaged."""
    submission = letter.submission
    if len(submission.verify) > addresses_max:
        raise DroppedDamaged(f"it asks about more than {addresses_max} addresses ([maildrop] verify_addresses_max)")
    if not 0.0 <= submission.submitted_at <= now + DAY_S:  # the report shows it
        raise DroppedDamaged("its time is wrong")
    if len(submission.recipients) != 1:
        raise DroppedDamaged("its report has one reader, and it names several")
    sender = submission.recipients[0]
    asked: dict[str, Asked] = {}
    known: list[Finding] = []
    for address in _different(submission.verify):
        finals: Sequence[str] = (address,)
        if rewriting is not None:
            sender, finals, why = _final(rewriting, submission, address, now)
            if why:
                known.append(Finding(address, Action.UNDELIVERABLE, "4.3.0", f"its final address is not known: {why}"))
                continue
        for final in finals:
            asked.setdefault(comparable(final), Asked(final, address if final != address else ""))
    first = tuple(asked.values())[: addresses_max - len(known)]
    return Question(sender, submission.user[:64], first, tuple(known), len(asked) - len(first))


def _different(addresses: Sequence[str]) -> Iterator[str]:
    """Yields each address once, however it is written. Raises DroppedDamaged."""
    seen: set[str] = set()
    for address in addresses:
        if not is_mailbox(address):
            raise DroppedDamaged(f"recipient {address!a} is not an address")
        same = comparable(address)
        if same not in seen:
            seen.add(same)
            yield address


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


def reported(letter: Letter, findings: Sequence[Finding], more: int, hostname: str, origin: str) -> Letter:
    """Returns the report, as a message without sender to the author of the request."""
    submission = letter.submission
    data = verified_report(findings, submission.recipients[0], hostname, submission.submitted_at, more, origin)
    report = Submission(
        sender="", recipients=submission.recipients[:1], submitted_at=submission.submitted_at, user=submission.user
    )
    return _Report(letter.name, letter.uid, report, data)
