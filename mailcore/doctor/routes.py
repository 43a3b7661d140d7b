"""Routes: whether the files of [route_maps] can be used, and the users of the processes that route can read them."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.route_files import route_faults
from mailcore.doctor.as_user import Ids, ids_of, name_of_user, unreadable
from mailcore.doctor.finding import Finding, bad, good, not_known
from mailcore.doctor.host import Host

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the files of [route_maps]."""
    files = list(host.settings.route_maps.files)
    if not files:
        yield good("routes", "no files are set")
        return
    faults = route_faults(host.settings)
    for fault in faults:
        yield bad(
            "routes",
            f"{fault}; the routes read before stay in use, and Waypost does not start with it",
            "Correct the file; it is read again within two seconds.",
        )
    is_good = not faults
    for ids in _ids(host):
        closed = unreadable(ids, files)
        if closed is None:
            yield not_known(
                "routes", f"cannot look with the rights of {name_of_user(ids)}", "Run waypost doctor as root."
            )
        for path, why in (closed or {}).items():
            yield bad(
                "routes",
                f"{path}: the user {name_of_user(ids)}, who looks up routes, cannot read it ({why})",
                f"Let this user read {path}, and look at the directories above it.",
            )
        is_good = is_good and closed == {}
    if is_good:
        yield good("routes", f"all files can be used: {len(files)}")


def _ids(host: Host) -> list[Ids]:
    """Returns the different ids of the processes that route: manager, control, and receivers that ask next hops."""
    asks = "next_hop" in host.settings.recipients.ways.values()
    found = {
        ids_of(process.pid): None
        for name, process in host.processes.items()
        if (name in ("manager", "control") or (asks and name.startswith("receiver.")))
        and process.pid is not None
        and process.is_up
    }
    return [each for each in found if each is not None]
