"""Valid recipients: whether the files that list them can be used, and the receivers' own user can read them; damage of their
own store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from mailcore.config.maps import recipient_faults
from mailcore.config.recipients import FILE, STATE, SUFFIX
from mailcore.doctor.as_user import ids_of_role, name_of_user, unreadable
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the files of [recipients], and about the receivers' own store."""
    yield from _store(host)
    yield from _files(host)


def _store(host: Host) -> Iterator[Finding]:
    """Yields a finding about a store that was set aside. Without the permission to look there is none."""
    aside = host.settings.home / STATE / (FILE + SUFFIX)
    try:
        at = os.stat(aside).st_mtime
    except OSError:
        return
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    yield warn(
        "recipients",
        f"{aside}: a damaged store of the receivers, last written on {day}; clients were new to the greylist after it",
        f"Look for errors of the disk in the log of the kernel; then delete {aside}.",
    )


def _files(host: Host) -> Iterator[Finding]:
    recipients = host.settings.recipients
    if "file" not in recipients.ways.values():
        known = "known by asking the next hop" if recipients.is_on else "not checked"
        yield good("recipients", f"recipients of [relay] domains are {known}")
        return
    files = recipients.relay_recipient_maps
    faults = recipient_faults(host.settings)
    for fault in faults:
        yield bad(
            "recipients",
            f"{fault}; receivers keep the list that they read before, and answer 451 after a restart",
            "Correct the file; receivers read it within two seconds.",
        )
    ids = ids_of_role(host, "receiver")
    closed = {} if ids is None else unreadable(ids, list(files))
    for path, why in (closed or {}).items():
        assert ids is not None
        yield bad(
            "recipients",
            f"{path}: the user {name_of_user(ids)} of the receivers cannot read it ({why})",
            f"Let this user read {path}, and look at the directories above it.",
        )
    if closed is None:
        yield not_known(
            "recipients", "cannot look with the rights of the receivers' user", "Run waypost doctor as root."
        )
    elif not faults and not closed:
        yield good("recipients", f"all files with valid recipients can be used: {len(files)}")
