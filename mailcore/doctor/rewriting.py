"""Rewriting: whether the files of [rewriting] can be used, and the users of the receivers and of control can read them."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.maps import map_faults
from mailcore.doctor.as_user import Ids, ids_of, name_of_user, unreadable
from mailcore.doctor.finding import Finding, bad, good, not_known
from mailcore.doctor.host import Host

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the files of [rewriting]."""
    files = list(host.settings.rewriting.files)
    if not files:
        yield good("rewriting", "no files are set")
        return
    faults = map_faults(host.settings.rewriting)
    for fault in faults:
        yield bad(
            "rewriting",
            f"{fault}; what was read before stays in use, and all mail gets 451 after a restart",
            "Correct the file; it is read again within two seconds.",
        )
    is_good = not faults
    for ids in _ids(host):
        closed = unreadable(ids, files)
        if closed is None:
            yield not_known(
                "rewriting", f"cannot look with the rights of {name_of_user(ids)}", "Run waypost doctor as root."
            )
        for path, why in (closed or {}).items():
            yield bad(
                "rewriting",
                f"{path}: the user {name_of_user(ids)}, who takes mail, cannot read it ({why})",
                f"Let this user read {path}, and look at the directories above it.",
            )
        is_good = is_good and closed == {}
    if is_good:
        yield good("rewriting", f"all files can be used: {len(files)}")


def _ids(host: Host) -> list[Ids]:
    """Returns the different ids of the receivers and of control that run."""
    found = {
        ids_of(process.pid): None
        for name, process in host.processes.items()
        if (name == "control" or name.startswith("receiver.")) and process.pid is not None and process.is_up
    }
    return [each for each in found if each is not None]
