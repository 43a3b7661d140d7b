"""Ways to break the feed of events and its webhooks: events lost, doubled, out of order, or of mail that a recovery drops."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

FEED = "tests/events/test_feed.py"
SENDER = "tests/appliance/webhooks/test_sender.py"

MUTATIONS = [
    Mutation(
        "the journal is read before the lanes",
        "mailcore/events/feed/feed.py",
        "key=lambda lane: (lane == JOURNAL, lane_order(lane))",
        "key=lambda lane: (lane != JOURNAL, lane_order(lane))",
        f"{FEED} -k in_the_order_of_its_message",
    ),
    Mutation(
        "a short stretch of the journal is read without the arrivals that its starts name",
        "mailcore/events/feed/live.py",
        "reached[lane] = max(reached.get(lane, 0), offset + 1)",
        "reached[lane] = max(reached.get(lane, 0), offset)",
        f"{FEED} -k in_the_order_of_its_message",
    ),
    Mutation(
        "a lane is read as far as restart positions say, although a start names more",
        "mailcore/events/feed/feed.py",
        "max(least.get(lane, 0), reached.get(lane, 0))",
        "least.get(lane, reached.get(lane, 0))",
        f"{FEED} -k just_started",
    ),
    Mutation(
        "what a recovery may drop is an event",
        "mailcore/events/feed/feed.py",
        "min(end, ends.get(lane, 0))",
        "ends.get(lane, 0)",
        f"{FEED} -k both_restart_positions",
    ),
    Mutation(
        "a deleted segment between two others is passed over",
        "mailcore/events/feed/live.py",
        "if end < durable and said is not None and",
        "if end < 0 and said is not None and",
        f"{FEED} -k deleted_unexported",
    ),
    Mutation(
        "an event file that is missing is passed over",
        "mailcore/events/feed/kept.py",
        "        if file.start > at and tells_of_mail(lane):",
        "        if file.start < 0 and tells_of_mail(lane):",
        f"{FEED} -k never_passed_over",
    ),
    Mutation(
        "a batch that ends within a record continues behind the record",
        "mailcore/events/feed/feed.py",
        "(told.offset, taken) if taken else (told.end, 0)",
        "(told.end, 0)",
        f"{FEED} -k in_the_order_of_its_message",
    ),
    Mutation(
        "the position moves before the answer",
        "appliance/webhooks/sender.py",
        "        began = self._monotonic()\n",
        "        self._update(hook, cursor=read.end)\n        began = self._monotonic()\n",
        f"{SENDER} -k only_behind_what_was_taken",
    ),
    Mutation(
        "what is being sent is not saved before it is sent",
        "appliance/webhooks/sender.py",
        "sending=request.delivery, sending_from",
        "sending=hook.sending, sending_from",
        f"{SENDER} -k killed_at_any_step",
    ),
    Mutation(
        "a redirection counts as taken",
        "appliance/common/posting.py",
        "return 200 <= self.status < 300",
        "return 200 <= self.status < 400",
        f"{SENDER} -k only_behind_what_was_taken",
    ),
    Mutation(
        "the first restart positions of a start do not cover mail of which the journal speaks",
        "mailcore/queue/recovery.py",
        "        if start.place.offset < recorded.end:",
        "        if start.place.offset >= 0:",
        "tests/queue/test_checkpoint.py -k first_positions_after_a_start",
    ),
    Mutation(
        "mail that a start finds in a receiver's lane is counted nowhere",
        "mailcore/queue/totals.py",
        "plus(folded.passed, arrived)",
        "folded.passed",
        "tests/queue/test_totals.py -k journal_proves",
    ),
    Mutation(
        "events that are asked for again may be of another shard",
        "mailcore/control/several/lists.py",
        'start = places.text(Turn(places.keys[number], alone=True), {number: batch["start"]})',
        'start = places.text(Turn(places.keys[places.behind(number)]), {number: batch["start"]})',
        "tests/control/test_several_events.py -k comes_again",
    ),
    Mutation(
        "the place of a shard that is not known now is forgotten",
        "mailcore/control/several/lists.py",
        "return written_parts(self._rest | parts, turn)",
        "return written_parts(parts, turn)",
        "tests/control/test_several_events.py -k events_go_on_at_another_node",
    ),
    Mutation(
        "event files that are still fetched are taken for gone",
        "mailcore/events/feed/feed.py",
        "                if may_come:\n",
        "                if False:\n",
        f"{FEED} -k being_fetched",
    ),
    Mutation(
        "a shard that is away is replaced when its events are asked for again",
        "mailcore/control/several/lists.py",
        "Turn(places.keys[number], alone=True)",
        "Turn(places.keys[number])",
        "tests/control/test_several_events.py -k away_is_not_replaced",
    ),
]
