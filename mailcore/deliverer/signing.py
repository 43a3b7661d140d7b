"""Signs mail with DKIM while it is delivered: what is stored stays as it was received, and a later retry has a fresh signature.

Only mail that is ours is signed (``Deliver.is_ours``): mail from our own users and networks, and our bounces. A forged sender
in mail that we relay for others gets no signature, and neither has an author of whose domain the user who logged in has no
sender address (``Deliver.author_domains``): each customer may have keys here, and one must not speak for another.

Laws
- A message of a domain with keys leaves with a signature of each of them, or it does not leave: while a key cannot be used,
  mail of its domain is deferred.
- The bytes that are hashed are the bytes that are sent: they come from the same blocks, whose checksums were compared.
- A key file that changes is read within LOOK_S. If it cannot be used, the key before stays in use, and the log says so.

Keeps law: signed-or-deferred (docs/laws.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

from mailcore.config.dkim import DkimKey, KeysByDomain
from mailcore.deliverer.key_file import CannotSign, Complain, KeyFile
from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.signable import Signable
from mailcore.dkim.signature import author_domain, signature
from mailcore.routing.domain_pattern import covers

__all__ = ["CannotSign", "Signing"]

SIGNATURES_KEPT, SIGNATURES_KEPT_S = 256, 60.0  # of messages with several destinations; each is below 2 kB


class Signing:
    """The keys of one deliverer. ``clock`` is monotonic, ``wall`` wall-clock seconds."""

    def __init__(
        self, keys: Sequence[DkimKey], complain: Complain, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._keys = KeysByDomain[KeyFile]()
        for key in keys:
            self._keys.add(key.domain, KeyFile(key, complain), subdomains=key.subdomains)
        self._clock = clock
        self._wall = wall
        self._kept: OrderedDict[tuple[str, int], tuple[bytes, float]] = OrderedDict()  # place -> signatures, until when

    async def sign(
        self, path: str, offset: int, data: MessageData, author_domains: Collection[str] | None = None
    ) -> MessageData:
        """Returns the data with its signatures; as it is if its From field has no domain with a key.

        ``author_domains``: patterns of the domains that may be signed for; None: all. The same data always has the same ones.

        ``path`` and ``offset`` are the place of the data, which never has other bytes. Raises DataError; CannotSign if a key
        cannot be used.
        """
        place = path, offset
        made, until = self._kept.get(place, (b"", 0.0))
        if self._clock() >= until:
            made = await self._signatures(data, author_domains)
            self._kept[place] = made, self._clock() + SIGNATURES_KEPT_S
            if len(self._kept) > SIGNATURES_KEPT:
                self._kept.popitem(last=False)
        return data.behind(made) if made else data

    async def _signatures(self, data: MessageData, author_domains: Collection[str] | None) -> bytes:
        signable = Signable(data)
        domain = author_domain(signable.fields)
        files = self._keys.of(domain)
        if not files or (author_domains is not None and not covers(author_domains, domain)):
            return b""
        now = self._clock()
        signers = [file.signer(now) for file in files]
        digest = await signable.body_digest()
        return b"".join([signature(signable.fields, digest, signer, self._wall()) for signer in signers])
