"""Signs mail with DKIM while it is delivered: what is stored stays as it was received, and a retry has a fresh signature.

Only mail that is ours is signed (``Deliver.is_ours``): mail from our own users and networks, and our bounces. A forged sender
in mail that we relay for others gets no signature.

Laws
- A message of a domain with keys leaves with a signature of each of them, or it does not leave: while a key cannot be used,
  mail of its domain is deferred.
- The bytes that are hashed are the bytes that are sent: they come from the same blocks, whose checksums were compared.
- A key file that changes is read within LOOK_S. If it cannot be used, the key before stays in use, and the log says so.

Keeps law: signed-or-deferred (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence

from mailcore.config.dkim import DkimKey
from mailcore.deliverer.message_data import DataError, MessageData
from mailcore.dkim.canonical import BodyHash, fields_of, unstuffed
from mailcore.dkim.key import BadKey, SigningKey, load_key
from mailcore.dkim.signature import Signer, author_domain, signature

__all__ = ["CannotSign", "Signing"]

LOOK_S = 1.0
SIGNATURES_KEPT, SIGNATURES_KEPT_S = 256, 60.0  # of messages with several destinations; each is below 2 kB
HEADER_END = b"\r\n\r\n"

Complain = Callable[[str, str], None]  # path of a key, reason


class CannotSign(DataError):
    """A key cannot be used; the message says which, and why."""

    reply = "the DKIM key of the sender's domain cannot be used on this host"
    event = "mail_not_signed"


class _KeyFile:
    """One key, which is read again when its file changes."""

    def __init__(self, settings: DkimKey, complain: Complain) -> None:
        self.settings = settings
        self._complain = complain
        self._seen: tuple[int, int, int] | None = None
        self._look_at = 0.0
        self._key: SigningKey | None = None
        self._reason = ""

    def signer(self, now: float) -> Signer:
        """Returns the key with its names. Raises CannotSign."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        if self._key is None:
            raise CannotSign(f"{self.settings.key}: {self._reason}")
        return Signer(self.settings.domain, self.settings.selector, self._key)

    def _look(self) -> None:
        path = self.settings.key
        try:
            status = os.stat(path)
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen and self._key is not None:
            return
        changed, self._seen = seen != self._seen, seen
        try:
            self._key, self._reason = load_key(path), ""
        except BadKey as bad:
            self._reason = str(bad)
            if changed:
                self._complain(path, self._reason)


class Signing:
    """The keys of one deliverer. ``clock`` is monotonic, ``wall`` wall-clock seconds."""

    def __init__(
        self, keys: Sequence[DkimKey], complain: Complain, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._exact: dict[str, list[_KeyFile]] = {}
        self._below: dict[str, list[_KeyFile]] = {}
        for key in keys:
            file = _KeyFile(key, complain)
            self._exact.setdefault(key.domain, []).append(file)
            if key.subdomains:
                self._below.setdefault(key.domain, []).append(file)
        self._clock = clock
        self._wall = wall
        self._kept: OrderedDict[tuple[str, int], tuple[bytes, float]] = OrderedDict()  # place -> signatures, until when

    async def sign(self, path: str, offset: int, data: MessageData) -> MessageData:
        """Returns the data with its signatures; as it is if its From field has no domain with a key.

        ``path`` and ``offset`` are the place of the data, which never has other bytes. Raises DataError; CannotSign if a key
        cannot be used.
        """
        place = path, offset
        made, until = self._kept.get(place, (b"", 0.0))
        if self._clock() >= until:
            made = await self._signatures(data)
            self._kept[place] = made, self._clock() + SIGNATURES_KEPT_S
            if len(self._kept) > SIGNATURES_KEPT:
                self._kept.popitem(last=False)
        return data.behind(made) if made else data

    async def _signatures(self, data: MessageData) -> bytes:
        header, body = b"", b""
        at = 0
        while at < data.length:
            block = data.read(at)
            at += len(block)
            header += block
            if header.startswith(b"\r\n"):
                header, body = b"", header[2:]
                break
            end = header.find(HEADER_END, max(0, len(header) - len(block) - len(HEADER_END)))
            if end >= 0:
                header, body = header[:end], header[end + len(HEADER_END) :]
                break
        fields = fields_of(unstuffed(header))
        files = self._of(author_domain(fields))
        if not files:
            return b""
        now = self._clock()
        signers = [file.signer(now) for file in files]
        hashed = BodyHash()
        hashed.feed(body)
        while at < data.length:
            await asyncio.sleep(0)  # a block takes a millisecond; other deliveries have their turn
            block = data.read(at)
            at += len(block)
            hashed.feed(block)
        digest = hashed.digest()
        return b"".join([signature(fields, digest, signer, self._wall()) for signer in signers])

    def _of(self, domain: str) -> list[_KeyFile]:
        found = self._exact.get(domain)
        while found is None and "." in domain:
            domain = domain.partition(".")[2]
            found = self._below.get(domain)
        return found or []
