"""Identity: whether home, queue, spool and events are the directories of this Waypost, or a disk is missing or exchanged."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.queue.identity import HOME, described, look

__all__ = ["look_at_identity"]

WHILE_RUNNING = "Do not restart Waypost before the right disk is mounted; see 'A disk is missing' in docs/operate.md."
MOUNT = "Mount the right disk, then start Waypost; see 'A disk is missing' in docs/operate.md."


def look_at_identity(host: Host) -> Iterator[Finding]:
    """Yields a finding for each directory that carries the identity."""
    supervisor = host.processes.get("supervisor")
    runs = supervisor is not None and supervisor.is_up
    looks = look(Disk(), {name: str(path) for name, path in host.settings.identified_directories.items()})
    if not any(each.identity or each.is_damaged for each in looks):
        if runs:
            yield warn(HOME, "no directory carries an identity: an older Waypost started it", "Restart Waypost.")
        else:
            yield good(HOME, "no directory carries an identity yet; the first start writes it")
        return
    for each in looks:
        figures = {
            "directory": each.directory,
            "identity": each.identity.identity if each.identity is not None else None,
        }
        if each.why_not:
            yield bad(each.name, each.why_not, WHILE_RUNNING if runs else MOUNT, **figures)
        elif each.identity is not None:
            yield good(each.name, f"{each.directory}: {described(each.identity)}", **figures)
        else:
            yield good(each.name, f"{each.directory} carries no identity yet; the next start writes it", **figures)
