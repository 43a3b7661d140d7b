"""The certificates of one receiver: read at the start, read again when a file changes, and chosen by name (SNI).

Laws
- A certificate that cannot be read, does not fit its key or is not valid now never replaces one that is valid, also not in a
  receiver that is restarted: it begins with what the receivers keep (``KeptPairs``).
- Without any certificate nothing falls back to the clear that was to be encrypted: listeners that require TLS refuse.
- A connection costs no look at a file: the files are looked at once a second.

Keeps law: certificate-stays-good (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mailcore.config.certificates import CertificateError, Loaded, Pair, load_content, load_pair
from mailcore.supervisor.kept_pairs import KeptPairs

__all__ = ["CertificateLog", "Certificates"]

RETRY_S = 10.0  # a pair that failed is tried again, also without a change: a directory may have become readable


class CertificateLog(Protocol):
    """Logs changes of certificates: ``MailLog``."""

    def certificate_read(self, path: str, until: float) -> None:
        """Logs that another certificate is in use."""

    def certificate_refused(self, path: str, why: str, instead: str) -> None:
        """Logs that a certificate cannot be used."""


class _Slot:
    """One pair of files, and what is in use of it."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.loaded: Loaded | None = None
        self.seen: object = None  # of the files when they were last read
        self.failed_at = 0.0  # monotonic; 0.0: the files are in use
        self.why = ""
        self.said = ""  # the reason and its consequence, as logged
        self.is_kept = True  # for receivers that are restarted


class Certificates:
    """Holds the TLS context for handshakes, which finds the certificate of a name. ``wall`` is seconds since 1970."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        log: CertificateLog,
        kept: KeptPairs | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = [_Slot(pair) for pair in pairs]
        self._log = log
        self._kept = kept or KeptPairs()
        self._wall = wall
        self._monotonic = monotonic
        self._by_name: dict[str, ssl.SSLContext] = {}
        self.context: ssl.SSLContext | None = None  # None: no certificate can be used
        for slot in self._slots:
            slot.loaded = self._kept_before(slot.pair)
        self.look(is_start=True)
        self._choose()

    def look(self, *, is_start: bool = False) -> bool:
        """Reads the files that have changed. Returns whether new handshakes have another context."""
        changed = False
        for slot in self._slots:
            seen = _signature(slot.pair)
            retry = slot.failed_at and self._monotonic() - slot.failed_at >= RETRY_S
            if is_start or seen != slot.seen or retry:
                # A renewal writes two files, one after the other: until both are there, they do not fit.
                is_settled = is_start or (seen == slot.seen and bool(retry))
                slot.seen = seen
                changed = self._read(slot) or changed
                if slot.why and is_settled:
                    self._complain(slot)
            elif slot.why:
                self._complain(slot)
            elif slot.loaded is not None and slot.loaded.not_after <= self._wall():  # not renewed
                self._refuse(slot, f"expired on {_day(slot.loaded.not_after)}")
                self._complain(slot)
            if not slot.is_kept:
                slot.is_kept = self._kept.keep(slot.pair.certificate, slot.pair.key)
        if changed:
            self._choose()
        return changed

    def _read(self, slot: _Slot) -> bool:
        """Reads a pair; returns whether it is in use now."""
        try:
            loaded = load_pair(slot.pair.certificate, slot.pair.key)
        except CertificateError as error:
            return self._refuse(slot, str(error))
        now = self._wall()
        before = slot.loaded
        why = ""
        if loaded.not_after <= now:
            why = f"expired on {_day(loaded.not_after)}"
        elif loaded.not_before > now:
            why = f"not valid before {_day(loaded.not_before)}"
        # A certificate that is not valid is better than none at all: other servers encrypt without a check, as with Postfix.
        if (
            why
            and before is not None
            and (before.not_before <= now < before.not_after or loaded.not_after <= before.not_after)
        ):
            return self._refuse(slot, why)
        slot.loaded = loaded
        slot.failed_at, slot.why = (self._monotonic(), why) if why else (0.0, "")
        if not why:
            slot.said = ""
            slot.is_kept = False
            self._log.certificate_read(slot.pair.certificate, loaded.not_after)
        return True

    def _refuse(self, slot: _Slot, why: str) -> bool:
        slot.failed_at, slot.why = self._monotonic(), why
        return False

    def _complain(self, slot: _Slot) -> None:
        """Logs why a pair is not in use and what is instead, once while that is so."""
        if slot.loaded is None:
            instead = "clients get the first certificate for its names" if slot.pair.names else "it is not in use"
        elif slot.loaded.not_after <= self._wall():
            instead = (
                "it is in use all the same, because there is no better one"
                if slot.why.startswith(("expired", "not valid"))
                else f"the one before stays in use, though it expired on {_day(slot.loaded.not_after)}"
            )
        else:
            instead = f"the one before stays in use, valid until {_day(slot.loaded.not_after)}"
        if slot.said != (saying := f"{slot.why}; {instead}"):
            slot.said = saying
            self._log.certificate_refused(slot.pair.certificate, slot.why, instead)

    def _kept_before(self, pair: Pair) -> Loaded | None:
        """Returns the pair as the receivers used it last; None if none did."""
        content = self._kept.find(pair.certificate, pair.key)
        with contextlib.suppress(CertificateError, OSError):
            return load_content(*content) if content is not None else None
        return None

    def _choose(self) -> None:
        usable = [slot for slot in self._slots if slot.loaded is not None]
        self._by_name = {
            name: slot.loaded.context
            for slot in reversed(usable)
            if slot.loaded is not None
            for name in slot.pair.names
        }
        first = usable[0].loaded if usable else None
        self.context = first.context if first is not None else None
        if self.context is not None and self._by_name:
            self.context.sni_callback = self._named

    def _named(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Chooses the certificate of the name that the client asks for; an unknown name gets the first one."""
        if name is None:
            return
        name = name.lower()
        chosen = self._by_name.get(name) or self._by_name.get("*." + name.partition(".")[2])
        if chosen is not None:
            tls.context = chosen


def _signature(pair: Pair) -> object:
    found: list[tuple[int, ...]] = []
    for name in (pair.certificate, pair.key):
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        except OSError as error:
            found.append((error.errno or 0,))
    return tuple(found)


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))
