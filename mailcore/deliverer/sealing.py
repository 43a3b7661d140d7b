"""Seals mail of others with ARC (RFC 8617) while it is passed on: the next hop can see what our check found when it came.

Laws
- Only mail that a receiver of ours has evaluated is sealed, with the results that this receiver wrote.
- The state of the chain (cv=) is the one verified at reception. A chain that had failed before is not continued; one that
  failed with us is ended by a last seal.
- A seal is not worth the mail: while the key cannot be used, mail leaves without one, and the log says so.

Keeps law: seal-tells-what-was-found (docs/laws.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mailcore.authenticity.arc_chain import SETS_MAX, ArcSet, Chain, chain_of, seal_data
from mailcore.authenticity.identifier import NAME, claims
from mailcore.authenticity.tags import BadTags, tags_of
from mailcore.deliverer.key_file import CannotSign, Complain, KeyFile, KeySettings
from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.signable import Signable
from mailcore.dkim.canonical import CRLF
from mailcore.dkim.signature import Signer, arc_message_signature, arc_seal

__all__ = ["Sealing", "open_sealing"]

ALGORITHM = "rsa-sha256"  # dkimpy and others take only this one for ARC
SEALS_KEPT, SEALS_KEPT_S = 256, 60.0  # of messages with several destinations; each is below 8 kB

Field = tuple[bytes, bytes]


class Sealing:
    """The seal of one deliverer. ``clock`` is monotonic, ``wall`` wall-clock seconds."""

    def __init__(
        self,
        settings: KeySettings,
        authserv_id: str,
        complain: Complain,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._file = KeyFile(settings, complain, ALGORITHM)
        self._authserv_id = authserv_id
        self._clock = clock
        self._wall = wall
        self._kept: OrderedDict[tuple[str, int], tuple[bytes, float]] = OrderedDict()  # place -> set, until when

    async def seal(self, path: str, offset: int, data: MessageData, state: str) -> MessageData:
        """Returns the data with a set in front of it, or as it is. ``state``: of the chain at reception. Raises DataError."""
        place = path, offset
        made, until = self._kept.get(place, (b"", 0.0))
        if self._clock() >= until:
            try:
                signer = self._file.signer(self._clock())
            except CannotSign:  # it was logged when the file was read
                return data
            made = await self._set_of(data, signer, state)
            self._kept[place] = made, self._clock() + SEALS_KEPT_S
            if len(self._kept) > SEALS_KEPT:
                self._kept.popitem(last=False)
        return data.behind(made) if made else data

    async def _set_of(self, data: MessageData, signer: Signer, state: str) -> bytes:
        signable = Signable(data)
        fields = signable.fields
        results = next((field for name, field in fields if self._is_result(name, field)), None)
        chain = chain_of(fields)
        instance = chain.highest + 1
        if results is None or instance > SETS_MAX or not _may_continue(chain, fields, state):
            return b""
        now = self._wall()
        value = results.partition(b":")[2].strip(b" \t")
        own_results = b"ARC-Authentication-Results: i=%d; %s" % (instance, value)
        message = arc_message_signature(fields, await signable.body_digest(), signer, now, instance)
        # Section 5.1.2: the seal that ends a chain covers its own set alone.
        before = () if state == "fail" else chain.sets
        word = state if chain.highest else "none"

        def data_of(unsigned: bytes) -> bytes:
            return seal_data((*before, ArcSet(own_results, message.removesuffix(CRLF), unsigned)))

        seal = arc_seal(signer, now, instance, word, data_of)
        return seal + message + own_results + CRLF

    def _is_result(self, name: bytes, field: bytes) -> bool:
        return name == NAME.lower() and claims(field, self._authserv_id)


def _may_continue(chain: Chain, fields: list[Field], state: str) -> bool:
    """Returns whether another set may follow (section 5.1.1): not after a seal that says fail, and not by guess."""
    if not chain.highest:
        return state == "none"
    if any(name == b"arc-seal" and _says_fail(field) for name, field in fields):
        return False
    return state == "fail" or (state == "pass" and bool(chain.sets))


def _says_fail(field: bytes) -> bool:
    try:
        return tags_of(field.partition(b":")[2].decode("utf-8", "replace")).get("cv", "").lower() == "fail"
    except BadTags:
        return False


def open_sealing(
    settings: KeySettings, authserv_id: str, complain: Complain, clock: Callable[[], float], wall: Callable[[], float]
) -> Sealing:
    """Returns the seal of a deliverer."""
    return Sealing(settings, authserv_id, complain, clock, wall)
