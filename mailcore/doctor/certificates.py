"""Certificates of the receivers and the portal: names, expiry, and whether the receivers serve the file on disk."""

from __future__ import annotations

import contextlib
import datetime
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID

from mailcore.config.certificates import Pair
from mailcore.config.values import check_certificate
from mailcore.doctor.as_user import ids_of_role, name_of_user, unreadable
from mailcore.doctor.finding import Finding, State, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.served import CONNECT_S, any_certificate, served

__all__ = ["look"]

SOON_DAYS = 14  # Let's Encrypt's clients renew when 30 days are left: by now one of them has failed for two weeks
NAMES_SHOWN = 4


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the certificates of the receivers and of the portal."""
    yield from _receivers(host)
    yield from _portal(host)


def _receivers(host: Host) -> Iterator[Finding]:
    pairs = host.settings.certificate_pairs
    if not pairs:
        yield good("receivers", "no certificate is configured; STARTTLS is not offered")
        return
    for pair in pairs:
        yield from _pair(host, pair)


def _pair(host: Host, pair: Pair) -> Iterator[Finding]:
    what = f"receivers, {', '.join(pair.names)}" if pair.names else "receivers"
    path = pair.certificate
    if (wrong := _wrong(host, what, pair)) is not None:
        yield wrong
        return
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    remedy = f"Renew {path}; receivers use it within a second."
    for name in pair.names or (host.greeting,):
        finding = _judged(what, certificate, name, host.wall(), remedy)
        if finding.state is not State.GOOD:
            break
    yield finding
    served = _served(host, pair)
    if served is None:
        yield not_known(
            what, "cannot check the certificate in use: no receiver answers with TLS",
            "See the findings on ports and processes; then run waypost doctor again.",
        )  # fmt: skip
    elif served != certificate:
        yield warn(
            what, f"in use: a certificate valid until {_day(served)}; {path} contains another one",
            "mail.log says why receivers do not use the file; see its lines with \"certificate\".",
        )  # fmt: skip
    else:
        yield good(what, "the certificate in use is the one in the file")


def _wrong(host: Host, what: str, pair: Pair) -> Finding | None:
    """Returns a finding if no server could use the two files, otherwise None."""
    for name in (pair.certificate, pair.key):
        try:
            with open(name, "rb"):
                pass
        except PermissionError:
            return not_known(what, f"this user cannot read {name}", "Run waypost doctor as root.")
        except (OSError, ValueError):  # reported below
            break
    if (closed := _closed(host, what, pair)) is not None:
        return closed
    try:
        check_certificate(pair.certificate, pair.key)
    except ValueError as error:
        strict = sorted({each.address for each in host.settings.all_listeners if each.tls in ("required", "implicit")})
        refused = f", and {', '.join(strict)} refuse all mail" if strict and not pair.names else ""
        return bad(
            what,
            f"{error}; the one before stays in use; after a restart there is no TLS with it{refused}",
            f"Put a certificate and its private key into {pair.certificate} and {pair.key}; no restart is necessary.",
        )
    return None


def _closed(host: Host, what: str, pair: Pair) -> Finding | None:
    """Returns a finding if the receivers' user cannot read the files, though this one can: root, after a renewal."""
    ids = ids_of_role(host, "receiver")
    for path, why in ((unreadable(ids, (pair.certificate, pair.key)) if ids is not None else None) or {}).items():
        assert ids is not None
        user = name_of_user(ids)
        return bad(
            what,
            f"{path}: the user {user} of the receivers cannot read it ({why}); the one before stays in use, and "
            "after a restart there is no TLS with it",
            f"Run: chgrp {user} {path} && chmod 0640 {path}, and look at the directories above it.",
        )
    return None


def _served(host: Host, pair: Pair) -> x509.Certificate | None:
    """Returns the certificate that the first listener with TLS gives to a client that asks for the pair's name."""
    name = pair.names[0].replace("*", "waypost-doctor", 1) if pair.names else None
    chain = served(host, name, host.settings.all_listeners)
    return x509.load_der_x509_certificate(chain[0]) if chain else None


def _portal(host: Host) -> Iterator[Finding]:
    url = urlsplit(host.settings.portal.public_url)
    if url.scheme != "https" or not url.hostname:
        yield good("portal", "HTTPS is not used: [portal] public_url is not an https address")
        return
    try:
        with (
            socket.create_connection((url.hostname, url.port or 443), CONNECT_S) as plain,
            any_certificate().wrap_socket(plain, server_hostname=url.hostname) as secured,
        ):
            certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    except (OSError, ValueError) as error:
        yield warn(
            "portal", f"no TLS connection to {host.settings.portal.public_url}: {error}",
            "Check the proxy in front of the portal and the name in [portal] public_url.",
        )  # fmt: skip
        return
    yield _judged("portal", certificate, url.hostname, host.wall(), "Renew the certificate and reload the proxy.")


def _judged(what: str, certificate: x509.Certificate, name: str, now: float, remedy: str) -> Finding:
    names = _names(certificate)
    left_days = (certificate.not_valid_after_utc.timestamp() - now) / 86_400
    shown = ", ".join(names[:NAMES_SHOWN]) or "no name"
    validity = f"for {shown}, valid until {_day(certificate)} ({left_days:.0f} days left)"
    figures = {"names": names, "days_left": left_days}
    if left_days < 0:
        return bad(what, f"for {shown}, expired on {_day(certificate)}", remedy, **figures)
    if certificate.not_valid_before_utc.timestamp() > now:
        begins = certificate.not_valid_before_utc.date()
        return bad(
            what,
            f"for {shown}, not valid before {begins}",
            "Check the clock of this host, or wait until that day.",
            **figures,
        )
    if not any(_covers(each, name) for each in names):
        return warn(what, f"{validity}; does not cover {name}", f"Get a certificate for {name}.", **figures)
    if left_days < SOON_DAYS:
        return warn(what, validity, remedy, **figures)
    return good(what, validity, **figures)


def _names(certificate: x509.Certificate) -> list[str]:
    """Returns the subject alternative names; without that extension, the common name."""
    with contextlib.suppress(x509.ExtensionNotFound, ValueError):
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = [str(each) for each in alternative.get_values_for_type(x509.IPAddress)]
        return [*alternative.get_values_for_type(x509.DNSName), *addresses]
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _covers(given: str, name: str) -> bool:
    """Tells whether a name of a certificate covers ``name``: "*" matches exactly one label, the first (RFC 6125 6.4)."""
    given, name = given.lower(), name.lower().strip("[]").removeprefix("ipv6:")
    return given == name or (given.startswith("*.") and given[2:] == name.partition(".")[2])


def _day(certificate: x509.Certificate) -> datetime.date:
    return certificate.not_valid_after_utc.date()
