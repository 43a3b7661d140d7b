"""Cut-through: messages that receivers offer are passed on while their clients wait, if the scheduler selects them now.

Laws
- Whether a message goes now is the scheduler's decision: it is admitted and selected like any other, behind everything older
  that could go. So windows, rates, suspensions, dead destinations and route holds hold here, too, and feedback counts.
- A receiver hears PASSED_ON only when the next hop has taken the message for all recipients, and REFUSED only when no next
  hop can have it. Everything else is UNCERTAIN, also a deliverer that was killed: it may have sent the final dot.
- A message that was passed on is one record, PASSED. It is not synced; if it is lost, arrival and end are lost together.
- In memory is what the deliverers have at once, and nothing else; an offer that cannot go now is refused at once. Where other
  queues share the limit of its destination, a few wait for an answer about that.
- A next hop that is always late costs few clients a wait (``slow_hops``).

Keeps law: passed-on-before-250, law: outcomes-balance (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mailcore.config.cut_through import cut_through_transports
from mailcore.envelope import Envelope, Recipient
from mailcore.frames import Delivered, Fate, FrameWriter, Offer, Offered, PassedOn, PassOn
from mailcore.log.lane import LaneFailed
from mailcore.manager.admission import of_recipient
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import DelivererLink, Flow
from mailcore.manager.slow_hops import SlowHops
from mailcore.queue.active import DataAt
from mailcore.queue.records import Delivery, Passed, domain_of, domains_of
from mailcore.request_priority import priority_of
from mailcore.routing.resolve import Refused, Resolve
from mailcore.scheduler.entry import Entry

__all__ = ["CutThrough"]

PLACE = "cut-through"  # as a path, with the queue id: what a deliverer keeps by place is of no other message
UNSYNCED_MAX = 1_000  # records that wait in memory for a sync; then one begins
# Why an offer is refused; each has a counter of that name, and ``cut_through_refused`` is their sum.
NO_ROUTE = "cut_through_route"  # not of one destination with cut-through, or too many recipients for one delivery
NO_ROOM = "cut_through_room"  # the disk, the active set or the deliverers are full
NO_TURN = "cut_through_turn"  # the scheduler did not select it: its window, a rate, a suspension, older mail
TOO_SLOW = "cut_through_slow"  # the next hop did not have the last message in time
COUNTERS = (
    "passed_on", "cut_through_uncertain", "cut_through_refused", NO_ROUTE, NO_ROOM, NO_TURN, TOO_SLOW, "cut_through_failed",
    "cut_through_late",
)  # fmt: skip


@dataclass(slots=True)
class _Passing:
    """A message that a deliverer passes on."""

    writer: FrameWriter  # of the receiver
    number: int
    envelope: Envelope
    entry: Entry
    destination: str
    began: float  # monotonic


class CutThrough:
    """Answers the offers of receivers."""

    def __init__(self, context: ManagerContext, flow: Flow) -> None:
        self._context = context
        self._flow = flow
        self._wait_s = cut_through_transports(context.settings.transports)
        self._lmtp = context.settings.lmtp_transports
        self._slow = SlowHops()
        self._passing: dict[DelivererLink, dict[int, _Passing]] = {}
        self._unsynced = 0
        if self._wait_s:
            for name in COUNTERS:
                context.count(name, 0)  # a counter that is there from the beginning: its first rise is seen

    def offer(self, writer: FrameWriter, offer: Offer) -> None:
        """Passes a message on, or refuses the offer at once. ``writer``: to the receiver."""
        routed, limits = self._route(offer.envelope), self._flow.limits
        if routed is not None and limits is not None:
            name = self._name(offer.envelope, *routed)
            if limits.asks_for(name, lambda: self._offered(writer, offer, routed)):
                return
        self._offered(writer, offer, routed)

    def _offered(self, writer: FrameWriter, offer: Offer, routed: tuple[str, str] | None) -> None:
        context = self._context
        envelope, now = offer.envelope, context.now()
        context.go_on()  # the scheduler's clock advances in here: a turn must see what has ended, such as a rest
        begun = NO_ROUTE if routed is None else self._select(envelope, *routed, now)
        if routed is None or isinstance(begun, str):
            context.count("cut_through_refused")
            context.count(str(begun))
            writer.send(Offered(offer.number, Fate.REFUSED))
            return
        link, entry = begun
        destination = routed[1]
        self._slow.try_again(destination)
        self._passing.setdefault(link, {})[entry.number] = _Passing(
            writer, offer.number, envelope, entry, destination, now
        )
        link.passing += 1
        place = DataAt(f"{PLACE}/{envelope.queue_id}", 0, len(offer.data), envelope.data_sums)
        work = self._flow.work(entry, envelope, envelope.recipients, destination, place)
        link.writer.send(PassOn(work, offer.data, self._wait_s[entry.transport]))

    def _route(self, envelope: Envelope) -> tuple[str, str] | None:
        """Returns transport and destination of all recipients; None if they are not of one, or it has no cut-through."""
        context = self._context
        routing = context.routing
        resolve: Resolve = routing.resolve
        if routing.by_sender:
            resolve = routing.of_message(envelope.sender, envelope.login)
        found: tuple[str, str] | None = None
        for recipient in envelope.recipients:
            resolved = resolve(recipient.address, recipient.route)
            if isinstance(resolved, Refused) or resolved.transport not in self._wait_s:
                return None
            if found is not None and found != (resolved.transport, resolved.destination):
                return None
            found = resolved.transport, resolved.destination
        if found is None or len(envelope.recipients) == 1:
            return found
        limit = context.scheduler.get(found[1], "destination_recipient_limit")
        if found[0] in self._lmtp or len(envelope.recipients) > int(str(limit)):
            return None  # each would have a verdict of its own
        return found

    def _name(self, envelope: Envelope, transport: str, destination: str) -> str:
        """Returns the name that the scheduler has for the destination."""
        if transport in self._context.scheduler.by_recipient:
            return of_recipient(envelope.recipients[0].address, destination)
        return destination

    def _select(
        self, envelope: Envelope, transport: str, destination: str, now: float
    ) -> tuple[DelivererLink, Entry] | str:
        """Returns a deliverer and the entry of the whole message if the scheduler selects it now, or why not."""
        context, flow = self._context, self._flow
        if self._slow.rests(destination, now):
            return TOO_SLOW
        scheduler, queue_id = context.scheduler, envelope.queue_id
        if context.stalled or len(context.queue.active) >= scheduler.tuning.globals.message_active_limit:
            return NO_ROOM
        flow.dispatch(now)  # older mail goes first
        link = flow.roomiest()
        if link is None or not scheduler.may_admit:
            return NO_ROOM
        name = self._name(envelope, transport, destination)
        numbers = [recipient.number for recipient in envelope.recipients]
        priority = priority_of(envelope.options) if envelope.options else 0
        scheduler.admit(queue_id, 0, [(number, transport, name) for number in numbers], now, priority)
        entry = scheduler.select(now)
        if entry is not None and flow.limits is not None:
            placed = flow.limits.place(entry, link)
            entry, link = (None, link) if placed is None else (entry, placed)
        if entry is not None and entry.queue_id != queue_id:  # another may go before it
            flow.send(link, entry, now)
            entry = None
        if entry is not None and len(entry.recipients) == len(numbers):
            return link, entry
        if entry is not None:
            if flow.limits is not None:
                flow.limits.taken_back(link, entry)
            scheduler.report(entry.number, (), False, now)
        scheduler.withdraw(queue_id, now)
        return NO_TURN

    # -- outcomes

    def answered(self, link: DelivererLink, frame: PassedOn) -> None:
        """Tells the receiver what came of it, and the scheduler how the site did; records a message that was passed on."""
        passing = self._passing.get(link, {}).pop(frame.result.entry, None)
        if passing is None:
            return
        link.passing -= 1
        if self._flow.limits is not None:
            self._flow.limits.ended(link, passing.entry, frame.result.resting)
        context, result, entry = self._context, frame.result, passing.entry
        now = context.now()
        reply = result.verdicts[0].reply if result.verdicts else ""
        if frame.is_late:  # the scheduler learns nothing from it, as from a deliverer that was killed
            self._return(passing, now)
            self._slow.late(passing.destination, now - passing.began, now)
            context.count("cut_through_late")
        else:
            self._slow.in_time(passing.destination)
            failed = result.site_failure or result.transport_failure
            context.scheduler.report(
                entry.number,
                entry.recipients,
                result.site_failure,
                now,
                result.transport_failure,
                reply if failed else "",
            )
        if frame.fate is Fate.PASSED_ON:
            self._record(passing, result)
            context.count("passed_on")
        else:
            self._log_failure(passing, result, frame.fate, now)
        passing.writer.send(Offered(passing.number, frame.fate, reply))
        context.go_on()

    def deliverer_gone(self, link: DelivererLink) -> None:
        """Tells the receivers of the messages that a lost deliverer had: a next hop may have them."""
        now = self._context.now()
        for passing in self._passing.pop(link, {}).values():
            self._return(passing, now)
            self._slow.broken_off(passing.destination)
            self._context.count("cut_through_uncertain")
            passing.writer.send(Offered(passing.number, Fate.UNCERTAIN, "the delivery was broken off"))

    def _return(self, passing: _Passing, now: float) -> None:
        scheduler = self._context.scheduler
        scheduler.report(passing.entry.number, (), False, now)
        scheduler.withdraw(passing.envelope.queue_id, now)

    def _record(self, passing: _Passing, result: Delivered) -> None:
        context, envelope = self._context, passing.envelope
        wall = context.wall()
        delivery = Delivery(
            envelope.queue_id,
            0,
            result.verdicts,
            wall,
            result.relay,
            result.tls,
            self._delays(passing, result),
            passing.destination,
            result.source_address,
            result.tls_verified,
            domain_of(envelope.sender),
            domains_of([recipient.address for recipient in envelope.recipients]),
            envelope.tag,
            envelope.size_bytes,
            result.tls_level,
        )
        context.queue.pass_on(Passed(envelope.queue_id, envelope, delivery))
        context.balance.pass_on(envelope)
        context.outcomes.note(passing.destination, result.verdicts, result.relay, wall)
        if context.measured is not None:
            context.measured.delivered(passing.entry.transport, result.verdicts, sum(delivery.delays))
        context.count("verdicts", len(result.verdicts))
        context.log.passed_on(envelope, delivery, passing.entry.transport)
        self._unsynced += 1
        if self._unsynced >= UNSYNCED_MAX:
            self._unsynced = 0
            context.commit.then(_synced)

    def _log_failure(self, passing: _Passing, result: Delivered, fate: Fate, now: float) -> None:
        """Logs an attempt that did not pass the message on; of an uncertain one, the verdicts, as the next hop may have it."""
        context, envelope = self._context, passing.envelope
        name = "cut_through_uncertain" if fate is Fate.UNCERTAIN else "cut_through_failed"
        context.count(name)
        delays = self._delays(passing, result)
        if result.tls_level:
            context.log.encrypted(
                envelope.queue_id, result.relay, result.tls, result.tls_level, result.tls_verified, delays[2]
            )
        if fate is not Fate.UNCERTAIN:
            reply = result.verdicts[0].reply if result.verdicts else ""
            context.log.not_passed_on(envelope.queue_id, result.relay, reply)
            return
        context.outcomes.note(passing.destination, result.verdicts, result.relay, context.wall())
        by_number = _by_number(envelope.recipients)
        for verdict in result.verdicts:
            recipient = by_number[verdict.number]
            context.log.delivery(
                envelope.queue_id, recipient.address, result.relay, verdict, delays, transport=passing.entry.transport,
                tls=result.tls, tls_level=result.tls_level, options=recipient.options,
            )  # fmt: skip

    def _delays(self, passing: _Passing, result: Delivered) -> tuple[float, float, float, float]:
        context = self._context
        whole = context.wall() - passing.envelope.arrived_at
        before = max(whole - (context.now() - passing.began), 0.0)
        return before, 0.0, result.connect_s, result.transmit_s


def _by_number(recipients: Sequence[Recipient]) -> dict[int, Recipient]:
    return {recipient.number: recipient for recipient in recipients}


def _synced(error: LaneFailed | None) -> None:
    if error is not None:
        raise error
