"""Files that processes read again when they change: whether they can be used, and by the users of these processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mailcore.doctor.as_user import Ids, ids_of, name_of_user, unreadable
from mailcore.doctor.finding import Finding, bad, good, not_known
from mailcore.doctor.host import Host

__all__ = ["look_at_files"]


def look_at_files(
    host: Host,
    what: str,
    files: Sequence[str],
    faults: Callable[[], Sequence[str]],
    consequence: str,
    readers: Callable[[str], bool],
    who: str,
) -> Iterator[Finding]:
    """Yields findings about the files of one section.

    ``faults`` reads them; ``consequence`` says what a fault does. ``readers`` selects the processes that read the files, by
    name; ``who`` says what their users do.
    """
    if not files:
        yield good(what, "no files are set")
        return
    found = faults()
    for fault in found:
        yield bad(what, f"{fault}; {consequence}", "Correct the file; it is read again within two seconds.")
    is_good = not found
    for ids in _ids(host, readers):
        user = name_of_user(ids)
        closed = unreadable(ids, files)
        if closed is None:
            yield not_known(what, f"cannot look with the rights of {user}", "Run waypost doctor as root.")
        for path, why in (closed or {}).items():
            yield bad(
                what,
                f"{path}: the user {user}, who {who}, cannot read it ({why})",
                f"Let this user read {path}, and look at the directories above it.",
            )
        is_good = is_good and closed == {}
    if is_good:
        yield good(what, f"all files can be used: {len(files)}")


def _ids(host: Host, readers: Callable[[str], bool]) -> list[Ids]:
    """Returns the different ids of the processes that run and read the files."""
    found = {
        ids_of(process.pid): None
        for name, process in host.processes.items()
        if readers(name) and process.pid is not None and process.is_up
    }
    return [each for each in found if each is not None]
