"""DANE for SMTP (RFC 7672): which policy TLSA records make, and whether a server's certificates match them. No DNS here.

Laws:
- TLSA records count only if they and the names that led to them were validated (``Address.secure``, ``TlsaAnswer.secure``).
- A look-up that failed does not deny anything: mail waits (RFC 7672 2.1.1). Only an answer that says that there are no
  records lowers the level "dane" to "may", and never that of "dane-only".
- With usage 3 only the server's own certificate or key counts, neither its names nor its time (RFC 7672 3.1.1). With usage 2
  the chain up to the certificate that matches is checked, with its times, and the names (RFC 7672 3.1.2).

Keeps law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

import datetime
import hashlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from mailcore.frames import NextHop
from mailcore.routing.mx import Address
from mailcore.routing.tlsa import Tlsa, TlsaAnswer
from mailcore.tls.policy import Policy
from mailcore.tls_result import Result

__all__ = ["NoMail", "chain_of", "matched", "policy_for", "policy_of_host", "usable"]

_DIGESTS = {1: hashlib.sha256, 2: hashlib.sha512}
_LENGTHS = {1: 32, 2: 64}
_ENCODING_DER = 2  # _ssl.ENCODING_DER, of the certificates that Python 3.11 has in a chain
_TO_MATCH_MAX = 10  # certificates in a chain; a real one has three


class NoMail(NamedTuple):
    """Why a host gets no mail. ``failed``: its records could not be looked up, or were bogus."""

    text: str
    failed: bool


async def policy_of_host(
    policy: Policy, address: Address, next_hop: NextHop, find: Callable[[str, int], Awaitable[TlsaAnswer]]
) -> Policy | NoMail:
    """Returns the policy that the TLSA records of a host make of "dane" or "dane-only". ``find`` looks them up."""
    base, answer = address.host, None
    for name in dict.fromkeys((address.canonical or address.host, address.host)) if address.secure else ():
        base, answer = name, await find(name, next_hop.port)
        if answer.failed or answer.records:
            break
    found = policy_for(policy, address, next_hop.host, base, answer)
    return found if isinstance(found, Policy) else NoMail(found, answer is not None and answer.failed)


def policy_for(policy: Policy, address: Address, next_hop: str, base: str, answer: TlsaAnswer | None) -> Policy | str:
    """Returns the policy for a host under "dane" or "dane-only"; or the reason, in words, why it gets no mail.

    ``base`` is the name whose TLSA records ``answer`` has; None: not asked, because the way to the host is not validated.
    """
    if answer is not None and answer.failed:
        return f"TLSA lookup error for {base}"
    if not address.secure or answer is None or not answer.secure:
        return _lower(policy, "may", f"{address.host}: its DNS records are not signed, or not validated on this host")
    if not answer.records:
        return _lower(policy, "may", f"{address.host} has no TLSA records")
    records = usable(answer.records)
    if not records:  # RFC 7672 2.2: the domain wants encryption, although it can't be checked
        lower = _lower(policy, "encrypt", f"{base} has only TLSA records that can't be used")
        return lower._replace(fault=Result.TLSA_INVALID) if isinstance(lower, Policy) else lower
    return Policy(policy.level, f"TLSA of {base}", tuple(dict.fromkeys((base, address.host, next_hop))), tlsa=records)


def _lower(policy: Policy, level: str, why: str) -> Policy | str:
    return why if policy.level == "dane-only" else policy.instead(level, why)


def _is_usable(record: Tlsa) -> bool:
    """Returns whether a record is one of RFC 7672 3.1: usages 0 and 1 are not for SMTP."""
    if record.usage not in (2, 3) or record.selector not in (0, 1):
        return False
    if record.matching == 0:
        return bool(record.data)
    return len(record.data) == _LENGTHS.get(record.matching)


def usable(records: Iterable[Tlsa]) -> tuple[Tlsa, ...]:
    """Returns the records that count for SMTP, without SHA-256 where there is SHA-512 of the same usage and selector.

    RFC 7672 3.1, RFC 7671 9.
    """
    found = [record for record in records if _is_usable(record)]
    strong = {(record.usage, record.selector) for record in found if record.matching == 2}
    return tuple(record for record in found if record.matching != 1 or (record.usage, record.selector) not in strong)


def chain_of(session: ssl.SSLObject) -> list[bytes]:
    """Returns the certificates that the server sent, in DER, its own first; [] if it sent none."""
    if hasattr(session, "get_unverified_chain"):  # Python 3.13
        return list(session.get_unverified_chain())
    sent: Any = session._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
    return [each.public_bytes(_ENCODING_DER) for each in sent or ()]


def matched(chain: Sequence[bytes], policy: Policy) -> Tlsa | None:
    """Returns the TLSA record of the policy that the chain fulfils; None if it fulfils none."""
    if not chain or len(chain) > _TO_MATCH_MAX:
        return None
    for record in policy.tlsa:
        if record.usage == 3 and _matches(chain[0], record):
            return record
    for record in policy.tlsa:
        if record.usage == 2 and _is_below(chain, record, policy.names):
            return record
    return None


def _matches(certificate: bytes, record: Tlsa) -> bool:
    content = certificate if record.selector == 0 else _public_key(certificate)
    if content is None:
        return False
    digest = _DIGESTS.get(record.matching)
    return (digest(content).digest() if digest is not None else content) == record.data


def _public_key(certificate: bytes) -> bytes | None:
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _is_below(chain: Sequence[bytes], record: Tlsa, names: Sequence[str]) -> bool:
    """Returns whether a certificate that matches the record has signed the server's, which has one of the names."""
    candidates = [each for each in chain[1:] if _matches(each, record)]
    if (record.selector, record.matching) == (0, 0):  # the record has the certificate itself, which need not be sent
        candidates.append(record.data)
    try:
        leaf, *above = [x509.load_der_x509_certificate(each) for each in chain]
        anchors = [x509.load_der_x509_certificate(each) for each in candidates]
    except ValueError:
        return False
    if not anchors:
        return False
    builder = PolicyBuilder().store(Store(anchors)).time(datetime.datetime.now(datetime.UTC))
    for name in names:
        try:
            builder.build_server_verifier(x509.DNSName(name)).verify(leaf, above)
        except (VerificationError, ValueError, UnsupportedAlgorithm):
            continue
        return True
    return False
