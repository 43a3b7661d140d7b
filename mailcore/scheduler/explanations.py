"""The meaning of each parameter in a paragraph or two, for the operator who is about to change it.

Values only; a test requires an explanation for each parameter. The rules are those of Postfix's SCHEDULER_README in our own
words; a difference from Postfix is stated. An empty line separates paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["explanation"]


def explanation(parameter: str) -> str:
    """Returns the explanation of a parameter. Raises KeyError at an unknown name."""
    return EXPLANATIONS[parameter]


_GLOBAL = {
    "message_active_limit": """
The maximum number of messages in memory. The scheduler can only choose among these, and only these can preempt a larger
message. All other messages wait in their lanes, in order, and use no memory.

With a higher limit, small messages can pass more large ones. Each message and its first recipients use memory.
""",
    "message_recipient_limit": """
The maximum number of recipients, of all messages together, that may be read before their transport is known. While fewer are
in memory, the first batch of a new message may use all that is left of this number.

Only first batches count here. Later batches use the pools of the transports (recipient_limit, extra_recipient_limit).
""",
    "message_recipient_minimum": """
The number of recipients of each message that are read even if all limits are reached. At least one is needed, because
otherwise the scheduler does not know the transport of the message.

This number times the messages in memory, plus the pools of all transports, is the upper bound of recipients in memory. If it
is small, large messages are read in many small batches once the pools are used up.
""",
    "minimal_backoff_time": """
The shortest time that a deferred message waits before its next attempt. The wait grows with the age of the message: it is the
message's age, but at least this time and at most maximal_backoff_time, rounded to a step of the retry ladder.

This is also the time for which a dead destination is not tried. Its mail is deferred without an attempt meanwhile.
""",
    "maximal_backoff_time": """
The longest time that a deferred message waits before its next attempt, regardless of its age. With a shorter time, mail is
delivered sooner after a long outage, but there are more failed attempts during the outage.
""",
    "maximal_queue_lifetime": """
The age at which a message that is still deferred is returned to its sender, with the last reply as the reason. The age is
checked after a failed attempt, so every message is tried at least once. With 0, a message is returned after its first failed
attempt.
""",
    "bounce_queue_lifetime": """
The same as maximal_queue_lifetime, for mail with an empty sender, which are bounces. A bounce has no sender to return it to,
so it is deleted. Many bounces go to forged senders; that is a reason for a shorter time.
""",
    "transport_retry_time": """
The time for which a transport is not tried after it could not deliver at all because of a problem on this host, such as
missing file descriptors, memory or name servers. The windows of its destinations stay unchanged. Its mail is deferred
meanwhile.
""",
    "idle_destination_limit": """
The number of destinations without mail whose state is kept: the end of a dead time, and their counters. The destinations that
had mail most recently are kept. A destination that was removed starts with its initial concurrency when it gets mail again.

Postfix differs: it removes a destination without mail at once, unless it is dead.
""",
    "deferred_active_share": """
The share of message_active_limit that deferred mail may use. The rest is reserved for new mail, so that a slow next hop with
a lot of deferred mail cannot make all other mail wait.

Postfix differs: there, deferred mail can fill the active queue.
""",
}

_TRANSPORT = {
    "process_limit": """
The maximum number of concurrent deliveries of a transport, to all its destinations together. It divides the capacity of this
host between transports; the window of a destination follows the capacity of a next hop. Each shard of a host has the whole
limit, and so has each node.

If one slow destination can use all of them, give it a smaller destination_concurrency_limit, or a transport of its own.
""",
    "delivery_slot_cost": """
A small message may preempt a large one, but only as far as the large one has earned delivery slots: it earns one slot for
each delivery_slot_cost of its entries that were selected, and the preempting message spends one slot for each entry. So a
message to thousands of recipients does not delay a message to one person.

With a cost of k, a large message takes at most k/(k-1) times as long as without preemption, even if preempting messages are
preempted themselves: with 5 a quarter longer, with 2 twice as long. A smaller number is faster for small messages and slower
for large ones. Below 2 there is no preemption, and messages are delivered in the order of their arrival.
""",
    "delivery_slot_loan": """
The number of slots that a smaller message gets in advance, before the large one has earned them. Until the large message has
earned them, it earns no slots for other messages. The large message is finished at almost the same time; the small one
sooner.

The discount in percent is subtracted from the slots that a message needs first, then this number.
""",
    "delivery_slot_discount": """
The share of the slots it needs that a smaller message gets in advance. With 50 percent it preempts when half of its slots are
earned; the other half is earned after the preemption. With 0 it waits for all its slots, with 100 for none of them.
""",
    "minimum_delivery_slots": """
A message that could never earn this many slots is not considered for preemption. Checking it would cost time at each delivery
and gain very little. So small messages keep the order of their arrival among themselves.
""",
    "recipient_limit": """
The pool of recipient slots of a transport: the number of recipients it may have in memory, in addition to first batches.
Messages get slots in the order of their arrival. The first message that is not completely read gets all free slots, because
it is delivered next, and good decisions need all its recipients.

Recipients that do not fit stay in the log until there is room.
""",
    "extra_recipient_limit": """
A second pool of recipient slots, for messages that preempt a larger one while the first pool is used up. Such a message gets
half of the free slots. Without this pool it would be read in batches of message_recipient_minimum, and preemption would gain
little.
""",
    "recipient_refill_limit": """
More recipients of a message are read when at least this many places are free. Fewer at a time would need more reads of the
log.
""",
    "recipient_refill_delay": """
After this time, more recipients are read even if fewer places are free than recipient_refill_limit requires. So a slow
destination does not prevent the other recipients of the same message from being read.
""",
    "transport_rate_delay": """
A pause after each delivery of the transport, to any destination. With a pause, deliveries are made one at a time. It is for
lines and gateways that count messages, and it makes a transport slow: with 1 second there are at most 3 600 deliveries per
hour. Shards and nodes that share limits have one rate together. 0 means no pause.
""",
}

_DESTINATION = {
    "initial_destination_concurrency": """
The first window of a destination that is new, that was dead, or that had no mail for a while: the maximum concurrent
deliveries before there is any feedback. After that, feedback changes the window.

It also limits how far the window may grow without use: successful deliveries widen it only while it is less than this number
above the deliveries in progress. Otherwise a destination with little mail would get a wide window that was never tested, and
feedback would correct it too late.
""",
    "destination_concurrency_limit": """
The maximum concurrent deliveries to one destination. Its window is between 1 and this number: it grows when deliveries
succeed, and shrinks when the site cannot be reached. For the next hop, it is the maximum number of connections from us.

For a next hop that answers 421 at too many connections, set a limit just below its own, or a small feedback that finds it.
""",
    "destination_concurrency_positive_feedback": """
How much a successful delivery adds to the destination's window. The amounts add up, and when they reach 1 the window grows by
one. With 1, each successful delivery adds one, and the window doubles with each round of deliveries. With 1/concurrency, a
whole round adds one, so the window grows steadily. 1/sqrt_concurrency is between the two.

A smaller amount suits next hops that limit connections and refuse further ones: with 1 up and 1 down, half of all deliveries
to such a site are refused; with 1/concurrency it was one in six in Postfix's measurement. If mail fails because of
congestion, or if there is little mail, the amount makes no difference. A refused recipient does not count as a failure; only
a failure before the first command of a message counts.
""",
    "destination_concurrency_negative_feedback": """
How much a delivery takes from the destination's window when the site failed: it refused the connection, sent no greeting, or
the handshake failed. The window shrinks by one at the first failure of a row, so that it is corrected at once. With less than
1, the next step follows only after enough further failures to add up to 1.

Therefore a single failure costs one. If one of several servers behind one address is down, a window with 1/concurrency in
both directions does not grow beyond about the number of servers. A fixed amount for successful deliveries, for example 0.25
if one in four fails, and the same amount or less for failures, lets it grow further.
""",
    "destination_concurrency_failed_cohort_limit": """
The number of failed cohorts after which the destination is declared dead and is not tried for minimal_backoff_time. A cohort
is as many deliveries as the window allows; each failure counts for its share of a cohort, and one success resets the count to
zero.

With 1, a destination is declared dead after one failed cohort, which suits sites that are really down. A higher number
tolerates a site that fails now and then, and costs more failed attempts at a site that is down. 0 means never.
""",
    "destination_rate_delay": """
A pause after each delivery to one destination. With a pause there is one delivery at a time, and the window has no effect. It
is for next hops that count messages per time. 0 means no pause.
""",
    "destination_recipient_limit": """
The maximum recipients of one message in one delivery. With more of them there are fewer transactions, and less data is sent
twice; some next hops refuse or delay transactions with many recipients.

With 1 for a whole transport, each recipient is a destination with a window of its own. The limits then count deliveries to
one person, not to one site.
""",
    "destination_concurrency_feedback_debug": """
Writes a line to the mail log when feedback changes the window of the destination: limit, window, the amounts added up, and
failed cohorts. Use it to find out how many connections a next hop accepts. For all destinations it writes a line for each
delivery.
""",
    "suspended_until": """
No delivery to the destination starts before this time; its mail waits, and its age grows. Suspending a destination sets it;
resuming it, or the end of the time, removes it. It cannot be set in the configuration file.
""",
}


def _flowing(text: str) -> str:
    """Removes the line breaks of this file."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


EXPLANATIONS: Mapping[str, str] = MappingProxyType(
    {name: _flowing(text) for name, text in (_GLOBAL | _TRANSPORT | _DESTINATION).items()}
)
