"""Ways to break milters: changes that are half made, and milters that are trusted to behave."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

SESSION = "tests/receiver/test_milter_session.py"
FAILURES = "tests/receiver/test_milter_failures.py"

MUTATIONS = [
    Mutation(
        "half of the changes of a milter stay",
        "mailcore/milter/filter.py",
        "            message.undo(mark)  #",
        "            pass  #",
        f"{FAILURES} -k breaks_at_the_end",
    ),
    Mutation(
        "a body from a milter is not dot-stuffed",
        "mailcore/milter/body.py",
        'data.replace(_STUFFED, b"\\r\\n..")',
        "data",
        f"{SESSION} -k exactly_what_is_stored",
    ),
    Mutation(
        "a message that a milter changed keeps its checksums",
        "mailcore/receiver/milter_message.py",
        "data_offset=0, data_sums=sums_of(data)",
        "data_offset=0",
        f"{SESSION} -k exactly_what_is_stored",
    ),
    Mutation(
        "a packet of a milter may have any length",
        "mailcore/milter/protocol.py",
        "if not 0 < length <= PACKET_BYTES_MAX:",
        "if not length:",
        f"{FAILURES} -k breaks_at_the_end",
    ),
    Mutation(
        "a milter changes what it has not negotiated",
        "mailcore/milter/filter.py",
        "                if not allowed:",
        "                if False:",
        f"{FAILURES} -k breaks_at_the_end",
    ),
    Mutation(
        "a milter is waited for without an end",
        "mailcore/milter/connection.py",
        '        self._fail(late if is_last else f"did not answer within {self._timeout_s:g} s")',
        "        self._wake()",
        f"{FAILURES} -k breaks_at_any_other_step",
    ),
]
