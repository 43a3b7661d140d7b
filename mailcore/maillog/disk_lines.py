"""The lines of the mail log about files and disks: what is damaged, full or set aside."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["DiskLines"]


class DiskLines(Lines):
    """A part of ``MailLog``."""

    def maildrop_damaged(self, file: str, what: str) -> None:
        """Logs that a file of the maildrop is not a message; it is kept under another name and not sent."""
        self._warning("pickup", f"{word(file)}: {free(what)}; set aside, not sent")
        self._object("maildrop_damaged", file=file, what=what)

    def record_set_aside(self, file: str, offset: int, what: str) -> None:
        """Logs a damaged record. It stays where it is, and what follows it is still read."""
        self._warning("qmgr", f"damaged record in {word(file)} at {offset}: {free(what)}; set aside")
        self._object("record_set_aside", file=file, offset=offset, what=what)

    def data_damaged(self, queue_id: str, what: str) -> None:
        """Logs that the data of a message is not what was received. It is not sent; the message is held."""
        self._warning("qmgr", f"{queue_id}: data is damaged: {free(what)}; not sent, held")
        self._object("data_damaged", queue_id=queue_id, what=what)

    def positions_damaged(self, files: Sequence[str], journal_bytes: int, seconds: float) -> None:
        """Logs that restart positions could not be believed, and what the start read instead. No mail is lost."""
        instead = "all files were read" if len(files) > 1 else "the others were used"
        self._warning(
            "qmgr",
            f"restart positions damaged: {word(' and '.join(files))}; {instead}: {journal_bytes} bytes of the journal, "
            f"{seconds:.1f} s",
        )
        self._object("positions_damaged", files=list(files), journal_bytes=journal_bytes, seconds=seconds)

    def swept(self, files: int) -> None:
        """Logs how many spool files without a message were removed; crashes leave them."""
        self._line("qmgr", f"swept: {counted(files, 'spool file')} without a message removed")
        self._object("swept", files=files)

    def sync_failed(self, file: str, error: str, service: str = "qmgr") -> None:
        """Logs a failed sync: the segment is sealed at the last good one, and a new one begins."""
        self._warning(service, f"sync of {word(file)} failed: {free(error)}; the segment is sealed, a new one begins")
        self._object("sync_failed", file=file, error=error)

    def disk_full(
        self,
        directory: str,
        free_bytes: int,
        reserve_bytes: int,
        free_inodes: int,
        reserve_inodes: int,
        service: str = "smtpd",
    ) -> None:
        """Logs that new mail gets 452 because space or inodes are short; deliveries continue. ``service``: of this process."""
        inodes = (
            f", {counted(free_inodes, 'inode')} free, {reserve_inodes} needed" if free_inodes < reserve_inodes else ""
        )
        sizes = f"{free_bytes} bytes free, {reserve_bytes} needed{inodes}"
        self._warning(service, f"{word(directory)} is full: {sizes}; refusing new mail with 452")
        self._object(
            "disk_full",
            directory=directory,
            free_bytes=free_bytes,
            reserve_bytes=reserve_bytes,
            free_inodes=free_inodes,
            reserve_inodes=reserve_inodes,
        )
