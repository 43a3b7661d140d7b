"""The section [maildrop]: where local programs leave mail with waypost-sendmail."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import whole

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
