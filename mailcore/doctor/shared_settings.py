"""The settings and users that all nodes share: whether this node has what the database has, as the process that takes them over
says.
"""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.shared_settings import NAMES, status_in
from mailcore.doctor.finding import AFTER_PROCESSES, Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host

__all__ = ["look"]

WHAT = "settings of all nodes"


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each kind of settings; nothing without a database."""
    if not host.settings.nodes.is_on:
        return
    status = status_in(host.settings.run_directory)
    if status is None:
        yield good(
            WHAT, "not shared: this node has not joined; values set live, managed settings and users are its own"
        )
        return
    if why := status.silence(host.wall()):
        yield not_known(WHAT, why, AFTER_PROCESSES)
        return
    if status.trouble:
        yield warn(
            WHAT,
            f"{status.trouble}; changes are refused, and those in force stay",
            "Look at the servers of the database.",
        )
    for kind, each in status.kinds.items():
        what = f"{NAMES[kind]} of all nodes"
        if each.trouble:
            yield bad(what, each.trouble, "Run waypost node settings; docs/nodes.md says what to do.")
        elif each.why_other:
            yield warn(what, each.why_other, "Run it again in seconds.")
        else:
            yield good(what, f"version {each.version}, the newest")
