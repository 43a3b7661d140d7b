"""Ways to break traces: spans that are lost, that change, or that say too much."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

TRACER = "tests/traces/test_tracer.py"

MUTATIONS = [
    Mutation(
        "the position is written before the spans are sent",
        "mailcore/traces/tracer.py",
        "        if spans and not self._send(spans):",
        "        self._save(lane, to)\n        if spans and not self._send(spans):",
        f"{TRACER} -k killed_at_any_step",
    ),
    Mutation(
        "what a recovery may drop is traced",
        "mailcore/traces/tracer.py",
        "min(end, ends.get(lane, 0))",
        "ends.get(lane, 0)",
        f"{TRACER} -k do_not_cover",
    ),
    Mutation(
        "a start forgets what was read before",
        "mailcore/traces/tracer.py",
        "            if at < to <= ends.get(lane, 0):",
        "            if at < 0:",
        f"{TRACER} -k between_any_two_records",
    ),
    Mutation(
        "replies of next hops are sent without the setting",
        "mailcore/traces/making.py",
        "        if self._addresses:\n            attributes |= of_replies(delivery)",
        "        attributes |= of_replies(delivery)",
        f"{TRACER} -k addresses_of_people",
    ),
    Mutation(
        "a root whose traceparent is forgotten has another trace",
        "mailcore/traces/making.py",
        "if self._contexts.from_tag and known.tag is None:",
        "if not queue_id:",
        f"{TRACER} -k traceparent_is_forgotten",
    ),
]
