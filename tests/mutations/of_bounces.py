"""Ways to break what reports to senders promise."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a dot at the beginning of a chunk is not stuffed",
        "mailcore/receiver/chunk_reader.py",
        "if self._begins_line and block[:1]",
        "if False and block[:1]",
        "tests/receiver/test_bdat.py",
    ),
    Mutation(
        "the octets of a refused chunk are commands",
        "mailcore/receiver/session.py",
        'if verb.upper() == b"BDAT":',
        "if not verb:",
        "tests/receiver/test_bdat.py -k thrown_away",
    ),
    Mutation(
        "our own words are a reply of the server",
        "mailcore/bounce/fields.py",
        "{'x-waypost' if remote is None else 'smtp'}",
        "smtp",
        "tests/bounce/test_fields.py -k own_words",
    ),
    Mutation(
        "a bounce is sent although its sender said NOTIFY=NEVER",
        "mailcore/manager/notices.py",
        "    return [each for each in owed if wants(each[0].options, each[1].status) or (by and each[1].relayed_to)]\n",
        "    return owed\n",
        "tests/end_to_end/test_dsn.py -k failure",
    ),
    Mutation(
        "a message is passed on after the time at which it should be returned",
        "mailcore/timed_request.py",
        "by is not None and by.returns and now >= by.deadline",
        "False",
        "tests/test_timed_request.py -k too_late",
    ),
    Mutation(
        "a message whose time is over waits for the end of the queue lifetime",
        "mailcore/manager/context.py",
        "return min(lifetime_s, self.age_s(active) + by.deadline - self.wall())",
        "return lifetime_s",
        "tests/end_to_end/test_times.py -k never_reached",
    ),
    Mutation(
        "a notice of success does not survive a kill",
        "mailcore/queue/fold.py",
        "verdict.status in (Status.BOUNCED, Status.EXPIRED) or verdict.relayed_to\n",
        "verdict.status in (Status.BOUNCED, Status.EXPIRED)\n",
        "tests/queue/test_fold.py tests/end_to_end/test_dsn.py -k owed_a_report",
    ),
    Mutation(
        "a notice of success is sent although the next hop sends one",
        "mailcore/deliverer/transaction.py",
        "    if work.recipient_options and connection.extensions.notices_are_ours:\n",
        "    if work.recipient_options:\n",
        "tests/end_to_end/test_dsn.py -k report_nothing",
    ),
    Mutation(
        "the mark of the delay warning is not written",
        "mailcore/manager/passes.py",
        "active.envelope = msgspec.structs.replace(active.envelope, delay_warned=True)\n",
        "pass\n",
        "tests/queue/test_laws_histories.py -k delay_is_reported_once_whenever",
    ),
    Mutation(
        "a message is warned of in each pass",
        "mailcore/manager/notices.py",
        "    if not after_s or active.envelope.delay_warned or active.orders:\n",
        "    if not after_s or active.orders:\n",
        "tests/end_to_end/test_dsn.py -k once_over_kills",
    ),
]
