"""TLS contexts for what a policy demands, and whether a certificate fulfils it. No connection, no DNS.

Names are compared as RFC 9525 says: only those in subjectAltName (a common name counts for nothing), a wildcard only as the
whole leftmost label, and for exactly one label. A name that begins with a dot stands for all below it (Postfix's
smtp_tls_secure_cert_match). An address is compared with the certificate's addresses.

Keeps law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mailcore.tls.ca_file import CaFile, Complain, silent
from mailcore.tls.policy import Policy

__all__ = ["CHECKED_BY_NAME", "Contexts", "mismatch", "names_of"]

CHECKED_BY_NAME = ("verify", "mta-sts")  # levels that ask for a CA and a name
NAMES_SHOWN = 5  # of a certificate; some have a hundred


class Contexts:
    """Makes each TLS context once; one that trusts a file of CAs again when the file changes.

    Raises OSError, of which ssl.SSLError is one, when such a file cannot be read the first time.
    """

    def __init__(self, complain: Complain = silent) -> None:
        self._complain = complain
        self._opportunistic: ssl.SSLContext | None = None
        self._unchecked: ssl.SSLContext | None = None
        self._checked: dict[str, CaFile] = {}

    def of(self, policy: Policy) -> ssl.SSLContext:
        """Returns the context for a connection under ``policy``. One that is checked has verify_mode CERT_REQUIRED."""
        if policy.level in CHECKED_BY_NAME:
            file = self._checked.get(policy.ca_file)
            if file is None:
                file = self._checked[policy.ca_file] = CaFile(policy.ca_file, _checked, self._complain)
            return file.context()
        if policy.tlsa:
            if self._unchecked is None:
                self._unchecked = _base()
                self._unchecked.verify_mode = ssl.CERT_NONE  # TLSA records take the place of CAs
            return self._unchecked
        if self._opportunistic is None:
            self._opportunistic = _base()
            self._opportunistic.verify_mode = ssl.CERT_NONE
            # As Postfix's tls_medium for opportunistic use: 1024-bit keys still occur, and the alternative is the clear.
            self._opportunistic.set_ciphers("DEFAULT:@SECLEVEL=0")
        return self._opportunistic


def _base() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the names are the policy's and not that of the host: ``mismatch``
    return context


def _checked(ca_file: str) -> ssl.SSLContext:
    context = _base()
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 8996
    context.verify_mode = ssl.CERT_REQUIRED
    if ca_file:
        context.load_verify_locations(ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns the DNS names and addresses in the subjectAltName of a checked certificate, as getpeercert() has it."""
    fields: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    return tuple(value for kind, value in fields if kind in ("DNS", "IP Address"))


def mismatch(certificate: Mapping[str, Any] | None, wanted: Sequence[str]) -> str:
    """Returns "" if the certificate has one of the names, otherwise the reason in words."""
    names = names_of(certificate)
    if any(_fits(name, one) for name in names for one in wanted):
        return ""
    has = ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else "")
    return f"its certificate is for {has or 'no name in subjectAltName'}, but must be for {' or '.join(wanted)}"


def _fits(name: str, wanted: str) -> bool:
    """Returns whether a name in a certificate is the name that is wanted."""
    address = _address(wanted)
    if address is not None or _address(name) is not None:
        return address is not None and address == _address(name)
    name, wanted = name.lower().removesuffix("."), wanted.lower().removesuffix(".")
    if wanted.startswith("."):
        return name.removeprefix("*").endswith(wanted) and len(name) > len(wanted) and "*" not in name[1:]
    if name.startswith("*."):
        label, _, rest = wanted.partition(".")
        # "*.org" would be a certificate for all of .org; a star inside another label, or a second one, is not a wildcard.
        return bool(label) and "." in rest and "*" not in name[1:] and rest == name[2:]
    return name == wanted


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
