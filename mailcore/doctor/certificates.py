"""Certificates: for whom and until when, of the receivers and of the portal; and is what is served what lies on the disk."""

from __future__ import annotations

import contextlib
import datetime
import smtplib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID

from mailcore.config.values import check_certificate, listen_address
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Patient

__all__ = ["look"]

SOON_DAYS = 30  # Let's Encrypt renews when a third of 90 days is left
CONNECT_S = 4.0
NAMES_TOLD = 4


def look(patient: Patient) -> Iterator[Finding]:
    yield from _receivers(patient)
    yield from _portal(patient)


def _receivers(patient: Patient) -> Iterator[Finding]:
    path = patient.settings.receiver.tls_certificate
    if not path:
        yield good("receivers", "no certificate is set, so no STARTTLS is offered")
        return
    if (wrong := _wrong(path, patient.settings.receiver.tls_key)) is not None:
        yield wrong
        return
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    yield _judged(
        "receivers", certificate, patient.greeting, patient.wall(), f"Renew {path}, and restart the receivers."
    )
    served = _over_smtp(patient)
    if served is None:
        yield not_known("receivers", "what they serve can't be seen: none of them answers STARTTLS")
    elif served != certificate:
        yield warn(
            "receivers", f"they serve another certificate than {path} holds (until {_day(served)})",
            "Restart Waypost's receivers: they read the file when they start.",
        )  # fmt: skip
    else:
        yield good("receivers", "they serve what is in the file")


def _wrong(certificate: str, key: str) -> Finding | None:
    """When no server could use the two files."""
    for name in (certificate, key):
        try:
            with open(name, "rb"):
                pass
        except PermissionError:
            return not_known("receivers", f"{name} is closed to this user", "Run it as root.")
        except (OSError, ValueError):  # which is told below
            break
    try:
        check_certificate(certificate, key)
    except ValueError as error:
        return bad(
            "receivers", f"{error}; Waypost does not start again with them",
            f"Put a certificate and its own key into {certificate} and {key}, and restart Waypost.",
        )  # fmt: skip
    return None


def _over_smtp(patient: Patient) -> x509.Certificate | None:
    host, port = listen_address(patient.settings.receiver.listen[0])
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - looked up, not bound
    with contextlib.suppress(OSError, smtplib.SMTPException), smtplib.SMTP(host, port, timeout=CONNECT_S) as client:
        client.starttls(context=_any())
        if isinstance(client.sock, ssl.SSLSocket):
            return x509.load_der_x509_certificate(client.sock.getpeercert(binary_form=True) or b"")
    return None


def _portal(patient: Patient) -> Iterator[Finding]:
    url = urlsplit(patient.settings.portal.public_url)
    if url.scheme != "https" or not url.hostname:
        yield good("portal", "it is not reached over https, as [portal] public_url says")
        return
    try:
        with (
            socket.create_connection((url.hostname, url.port or 443), CONNECT_S) as plain,
            _any().wrap_socket(plain, server_hostname=url.hostname) as secured,
        ):
            certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    except (OSError, ValueError) as error:
        yield warn(
            "portal", f"{patient.settings.portal.public_url} gives none: {error}",
            "Look at the proxy in front of the portal, and at the name in [portal] public_url.",
        )  # fmt: skip
        return
    yield _judged("portal", certificate, url.hostname, patient.wall(), "Renew it, and reload the proxy.")


def _judged(what: str, certificate: x509.Certificate, name: str, now: float, remedy: str) -> Finding:
    names = _names(certificate)
    left_days = (certificate.not_valid_after_utc.timestamp() - now) / 86_400
    shown = ", ".join(names[:NAMES_TOLD]) or "nobody"
    told = f"for {shown}, until {_day(certificate)} ({left_days:.0f} days left)"
    figures = {"names": names, "days_left": left_days}
    if left_days < 0:
        return bad(what, f"for {shown}, expired on {_day(certificate)}", remedy, **figures)
    if certificate.not_valid_before_utc.timestamp() > now:
        begins = certificate.not_valid_before_utc.date()
        return bad(what, f"for {shown}, valid from {begins} on", "Look at the clock, or wait until then.", **figures)
    if not any(_is_for(each, name) for each in names):
        return warn(what, f"{told}: not for {name}", f"Have one made for {name}.", **figures)
    if left_days < SOON_DAYS:
        return warn(what, told, remedy, **figures)
    return good(what, told, **figures)


def _names(certificate: x509.Certificate) -> list[str]:
    """Of the extension; without it the common name, as people of old did it."""
    with contextlib.suppress(x509.ExtensionNotFound, ValueError):
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = [str(each) for each in alternative.get_values_for_type(x509.IPAddress)]
        return [*alternative.get_values_for_type(x509.DNSName), *addresses]
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _is_for(given: str, name: str) -> bool:
    """RFC 6125 6.4: a star stands for one label, the first."""
    given, name = given.lower(), name.lower().strip("[]").removeprefix("ipv6:")
    return given == name or (given.startswith("*.") and given[2:] == name.partition(".")[2])


def _day(certificate: x509.Certificate) -> datetime.date:
    return certificate.not_valid_after_utc.date()


def _any() -> ssl.SSLContext:
    """It is looked at, whoever signed it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
