"""Certificates that this host signs itself, until there are others: for SMTP, and for the portal's HTTPS."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["DAYS", "RENEW_DAYS", "fingerprint", "is_due", "make"]

DAYS = 397  # browsers refuse longer ones (CA/Browser Forum, ballot SC-031)
RENEW_DAYS = 30
ORGANISATION = "Waypost, made by this host"
COMMON_NAME_MAX = 64  # RFC 5280, ub-common-name
_SKEW = datetime.timedelta(hours=1)  # for clients whose clock is behind


def make(certificate: Path, key: Path, names: Sequence[str], owner: tuple[str, str], mode: int, now: float) -> None:
    """Writes a new key and a certificate for ``names``, which are host names and addresses.

    The key is of user and group ``owner`` and has ``mode``; it exists under its name only with both. Raises OSError.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(private, names, datetime.datetime.fromtimestamp(now, datetime.UTC))
    new_key, new_certificate = (path.with_name(f".{path.name}.new") for path in (key, certificate))
    new_key.unlink(missing_ok=True)
    descriptor = os.open(new_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(
            private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    if os.geteuid() == 0:
        shutil.chown(new_key, *owner)
    new_key.chmod(mode)
    new_certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    new_certificate.chmod(0o644)
    new_key.replace(key)
    new_certificate.replace(certificate)


def _certificate(private: ec.EllipticCurvePrivateKey, names: Sequence[str], now: datetime.datetime) -> x509.Certificate:
    common = names[0] if len(names[0]) <= COMMON_NAME_MAX else "waypost"
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=DAYS) - _SKEW)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def is_due(certificate: Path, now: float) -> bool:
    """Tells whether there is no certificate, or one that this host made and that expires within RENEW_DAYS.

    One from elsewhere is never due. Raises OSError, ValueError.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except FileNotFoundError:
        return True
    made_here = [each.value for each in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [
        ORGANISATION
    ]
    left = found.not_valid_after_utc - datetime.datetime.fromtimestamp(now, datetime.UTC)
    return made_here and left < datetime.timedelta(days=RENEW_DAYS)


def fingerprint(certificate: Path) -> str:
    """Returns the SHA-256 fingerprint as browsers show it: pairs of digits with colons. Raises OSError, ValueError."""
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
