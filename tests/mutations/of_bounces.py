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
]
