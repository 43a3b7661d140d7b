"""The section [maildrop]: where local programs leave mail with waypost-sendmail."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import number, whole

__all__ = ["Maildrop"]


@dataclass(frozen=True, kw_only=True)
class Maildrop:
    """[maildrop]: mail of local programs, submitted with waypost-sendmail."""

    files_max: int = whole(
        10_000,
        1,
        10_000_000,
        "files",
        "files that may wait in the maildrop; while there are more, no program may add one",
    )
    verify_addresses_max: int = whole(
        100,
        1,
        1_000,
        "addresses",
        "addresses of one `sendmail -bv`, and those that it asks about after aliases; the report has the number of the others",
    )
    verify_requests_max: int = whole(
        10,
        1,
        1_000,
        "requests",
        "requests of `sendmail -bv` that are answered at a time; further ones wait in the maildrop",
    )
    verify_questions_max: int = whole(
        5,
        1,
        100,
        "questions",
        "addresses that are verified at a time, of all requests: each may be a connection to another server",
    )
    verify_timeout_s: float = number(
        120, 1, 3600, "seconds", "time to verify one address of `sendmail -bv`: the DNS and all hosts of its next hop"
    )
