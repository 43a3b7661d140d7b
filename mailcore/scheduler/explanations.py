"""What each parameter means, in a paragraph or two, for whoever is about to change it.

Values only; a test demands one for each parameter there is. The sense is that of Postfix's SCHEDULER_README, the words are
ours; where this scheduler does something else, that is said. Paragraphs are separated by an empty line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["explanation"]


def explanation(parameter: str) -> str:
    """Raises KeyError for what is no parameter."""
    return EXPLANATIONS[parameter]


_GLOBAL = {
    "message_active_limit": """
How many messages the scheduler holds in memory at a time. It is how far the scheduler can see: only what is in memory can be
chosen, or be let past a bigger message. Everything else waits in its lane, in order, and costs no memory there.

More of it lets small mail find its way past more big mail; it costs memory for each message and its first recipients.
""",
    "message_recipient_limit": """
How many recipients of all messages together may be read before anybody knows which transport they belong to. As long as fewer
are in memory, the first batch of a new message may be as large as what is left of this number.

Only first batches are paid from it. What is read later is paid from the pools of the transports (recipient_limit,
extra_recipient_limit).
""",
    "message_recipient_minimum": """
How many recipients of each message are read whatever the limits say. At least one must be, or the scheduler could not know
which transport the message is for.

Together with message_active_limit it gives the upper bound of memory: this number times the messages in memory, and the pools
of all transports on top. A small number means that big messages are read in many small batches once the pools are used up.
""",
    "minimal_backoff_time": """
The shortest time a deferred message waits before it is tried again. The wait grows with the age of the message: it is the
message's age, but no less than this and no more than maximal_backoff_time, rounded to a step of the retry ladder.

A destination that was declared dead is left alone for as long. Its mail is deferred meanwhile, without being tried.
""",
    "maximal_backoff_time": """
The longest time a deferred message waits before it is tried again, however old it is. A shorter one finds a next hop sooner
after a long trouble, and makes more attempts in vain while it lasts.
""",
    "maximal_queue_lifetime": """
The age at which a message that is still deferred is given up and returned to its sender, with the last reply as the reason. It
is looked at when an attempt has failed, so every message is tried at least once; 0 returns what fails the first time.
""",
    "bounce_queue_lifetime": """
The same as maximal_queue_lifetime, for mail with an empty sender: bounces. They cannot be returned to anybody, so what is given
up is gone. Many of them go to senders that were forged, which is a reason to make this time shorter.
""",
    "transport_retry_time": """
How long a transport is left alone after it could not deliver at all, because of trouble on this host: no descriptors, no
memory, no name server. None of its destinations is blamed for it, and their windows stay as they are. Mail that waits for it is
deferred.
""",
    "idle_destination_limit": """
How many destinations without mail are remembered: until when they are dead, and what was counted of them. Those that had mail
last are kept. A destination that is forgotten begins anew, with the initial concurrency, when mail for it comes.

Not Postfix's: there a destination without mail is forgotten at once, unless it is dead.
""",
    "deferred_active_share": """
Which share of message_active_limit deferred mail may take. The rest is kept for new mail, so that a next hop that is slow and
owed a lot of mail can't make all other mail wait.

Not Postfix's: there deferred mail can fill the active queue.
""",
}

_TRANSPORT = {
    "process_limit": """
How many deliveries a transport may have at once, to all its destinations together. It shares out what this host can do; what
one next hop can bear is said by the destination's window.

Should one slow destination be able to take all of them, give it a smaller destination_concurrency_limit, or a transport of its
own.
""",
    "delivery_slot_cost": """
The scheduler lets a small message go in front of a big one, but only as far as the big one has earned it: a message gets one
free delivery slot for each so many entries of its own that were selected, and a smaller message pays with such slots for going
first. So a message to thousands does not hold up one to a single person.

With a cost of k, a big message takes at most k/(k-1) times as long as it would without any preemption, even when messages that
preempt are preempted themselves: at 5 that is a quarter longer, at 2 twice as long. A smaller number is quicker for small mail
and slower for big mail; below 2 there is no preemption, and mail goes out in the order in which it came in.
""",
    "delivery_slot_loan": """
How many slots a smaller message gets in advance, before the big one has earned them. The big message makes up for it later:
until it has, it earns nothing for anybody else. It hardly changes when the big one is done, and the small one is done sooner.

What a candidate needs is first lessened by the discount in percent, and then by this number.
""",
    "delivery_slot_discount": """
Which share of the slots it needs a smaller message gets in advance. At 50 percent it goes first when half of them are earned;
the rest is earned when the big message goes on. 0 makes it wait for all of them, 100 for none.
""",
    "minimum_delivery_slots": """
A message that could never earn so many slots is not looked at for preemption: looking costs time at each delivery, and there
would be next to nothing to win. So messages that are small themselves keep the order in which they came in.
""",
    "recipient_limit": """
The pool of recipient slots of a transport: how many recipients it may have in memory, beyond the first batches. The slots go
along the list of jobs in the order in which the messages came. The first message that is not wholly read has all that are left,
because it is the one that is delivered next, and good decisions need it known to the end.

What does not fit stays in the log and is read when there is room.
""",
    "extra_recipient_limit": """
A second pool of recipient slots, for messages that are let past a bigger one while the first pool is used up. Such a message
gets half of what is left of it. Without that it could only be read in batches of message_recipient_minimum, and going first
would win it little.
""",
    "recipient_refill_limit": """
More recipients of a message are read when at least so many places are free. Reading a few at a time would mean going back to
the log for each of them.
""",
    "recipient_refill_delay": """
After this time more recipients are read though fewer places are free than recipient_refill_limit asks for. So a slow
destination does not keep the others of the same message from being read.
""",
    "transport_rate_delay": """
A pause after each delivery of the transport, to whatever destination. With it deliveries are made one at a time. It is meant
for lines and gateways that count messages, and it makes a transport slow: at 1 second there are 3 600 deliveries an hour at
the most. 0 is no pause.
""",
}

_DESTINATION = {
    "initial_destination_concurrency": """
The window of a destination that is new, that comes back from being dead, or that had no mail for a while: how many deliveries
it may have at once before anything is known of it. From there feedback moves the window.

It also says how far the window may run ahead: good deliveries widen it only while it is less than this number above the
deliveries that are really under way. Otherwise a destination with little mail would gather a window that nobody has tried, and
correcting it would come too late.
""",
    "destination_concurrency_limit": """
How many deliveries to one destination there may be at once. Its window moves between 1 and this number, up when deliveries
succeed, down when the site cannot be reached. It is what the next hop's owner sees of us: connections side by side.

A next hop that answers 421 when there are too many is best given a limit just below what it bears, or a gentle feedback that
finds it.
""",
    "destination_concurrency_positive_feedback": """
How much a delivery that came through adds to the destination's window. Whole steps only: the amounts add up, and when they
make 1 the window grows by one. With 1 each good delivery adds one, and the window doubles with each round of deliveries. With
1/concurrency a whole round of them adds one, so that it grows steadily. 1/sqrt_concurrency lies between.

A smaller amount is for next hops that limit connections and refuse what is too much: with 1 up and 1 down, half of all
deliveries to such a site are refused; with 1/concurrency it was one in six in Postfix's measurement. Where mail fails from
congestion, or where there is little of it, the amount makes no difference. A refused recipient is no failure here; only what
happens before the first command for a message counts.
""",
    "destination_concurrency_negative_feedback": """
How much a delivery takes from the destination's window when the site failed: it could not be connected to, gave no greeting,
or lost the handshake. The window shrinks by one at the beginning of such a row and not at its end, so that too much is
corrected at once; with less than 1, the next step comes only after as many more failures as make 1.

That is also what makes it sensitive: one lonely failure costs one. Of a site with several servers behind one address, one of
which is down, a window with 1/concurrency both ways does not get beyond about the number of servers. A fixed amount for good
deliveries, say 0.25 when one in four is bad, and no more than that for failures, gets beyond it.
""",
    "destination_concurrency_failed_cohort_limit": """
How many rounds of deliveries must fail until the destination is declared dead and left alone for minimal_backoff_time. A round,
called cohort, is as many deliveries as the window is wide; each failure counts for its share of one, and a single success sets
the count back to nothing.

With 1 a site is given up after one round, which is quick for sites that are really down. More of them is patient with a site
that fails now and then, and costs more attempts in vain at one that is gone. 0: never.
""",
    "destination_rate_delay": """
A pause after each delivery to one destination. With it there is one delivery at a time, whatever the window. It is for next
hops that count messages in a time; 0 is no pause.
""",
    "destination_recipient_limit": """
How many recipients of one message go with one delivery. More of them means fewer transactions and less data sent twice; some
next hops refuse or delay transactions with many.

With 1 for a whole transport, each recipient is a destination with a window of its own: the limits then count deliveries to one
person and not to one site.
""",
    "destination_concurrency_feedback_debug": """
Writes a line into the mail log whenever feedback moves the window of the destination: limit, window, what has added up, and
failed cohorts. Good for finding out what a next hop bears; a line for each delivery is a lot for all of them.
""",
    "suspended_until": """
No delivery to the destination is begun until then; its mail waits and grows older. It is set by suspending and ended by
resuming a destination, or by itself at its time, and is no value of the configuration file.
""",
}


def _flowing(text: str) -> str:
    """Without the line breaks of this file."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


EXPLANATIONS: Mapping[str, str] = MappingProxyType(
    {name: _flowing(text) for name, text in (_GLOBAL | _TRANSPORT | _DESTINATION).items()}
)
