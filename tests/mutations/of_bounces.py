"""Ways to break what reports to senders promise."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
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
        "    return [outcome for outcome in owed if wants(outcome[0].options, outcome[1].status)]\n",
        "    return owed\n",
        "tests/end_to_end/test_dsn.py -k failure",
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
