"""Looks into the files that are handed in to be kept: certificates with their keys, CAs, DKIM keys; and makes such keys.

Each fault has the argument that it is in. Nothing here reads or writes a file, and no text has a part of a private key.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID

from mailcore.control.protocol.kept import CertificateFacts, DkimFacts
from mailcore.counted import counted
from mailcore.dkim.key import SigningKey, key_of_pem, new_key

__all__ = [
    "ContentFault", "certificate_facts", "chain_of", "dkim_facts", "key_of", "load_dkim", "names_of", "new_certificate",
    "new_dkim", "new_request", "pem_of", "public_of",
]  # fmt: skip

CHAIN_MAX = 20
RSA_BITS_MIN = 2048
STRING_MAX = 255  # characters of one string of a TXT record, RFC 1035 3.3.14
_CURVES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


class ContentFault(ValueError):
    """A text that was handed in can't be used. ``argument``: of the operation."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


def chain_of(text: str) -> list[x509.Certificate]:
    """Reads a PEM chain, the server's certificate first. Raises ContentFault."""
    if "PRIVATE KEY-----" in text:
        raise ContentFault(
            "text", "has a private key in it; hand in the certificates here and the key in its own field"
        )
    try:
        chain = x509.load_pem_x509_certificates(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ContentFault(
            "text",
            "must be certificates in PEM form, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----",
        ) from None
    if len(chain) > CHAIN_MAX:
        raise ContentFault("text", f"has {counted(len(chain), 'certificate')}; at most {CHAIN_MAX} are allowed")
    return chain


def pem_of(chain: Sequence[x509.Certificate]) -> bytes:
    """Returns the chain as PEM, without what else was in the text."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)


def key_of(text: str) -> bytes:
    """Returns a private key as PEM in one form, without a password. Raises ContentFault."""
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
    except TypeError:
        raise ContentFault("key", "is encrypted; remove its password first: a server cannot ask for it") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ContentFault("key", "must be a private key in PEM form, such as -----BEGIN PRIVATE KEY-----") from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < RSA_BITS_MIN:
        raise ContentFault("key", f"has {key.key_size} bits; an RSA key needs {RSA_BITS_MIN} or more")
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_of(material: bytes | x509.Certificate) -> bytes:
    """Returns the public key of a private key in PEM form, or of a certificate, as DER. Raises ValueError."""
    if isinstance(material, bytes):
        public: Any = serialization.load_pem_private_key(material, None).public_key()
    else:
        public = material.public_key()
    encoded: bytes = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def certificate_facts(chain: Sequence[x509.Certificate], now: float) -> CertificateFacts:
    """Returns what the first certificate says. Raises ContentFault if a server must not use it."""
    first, others = chain[0], chain[1:]
    names = names_of(first)
    begins, ends = first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp()
    if not _is_server(first):
        raise ContentFault(
            "text", "begins with the certificate of an authority; the server's own must be the first one"
        )
    for at, (one, issuer) in enumerate(zip(chain, others, strict=False), 1):
        try:
            one.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            raise ContentFault(
                "text",
                f"is not in order: certificate {at} ({_name(one.subject)}) was not issued by certificate {at + 1} "
                f"({_name(issuer.subject)}); each must be followed by the one of its issuer",
            ) from None
    if ends <= now:
        raise ContentFault("text", f"has expired on {first.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if begins > now:
        raise ContentFault("text", f"is not valid before {first.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    if not names:
        raise ContentFault("text", "has no name in subjectAltName; clients look there alone")
    self_signed = first.issuer == first.subject
    warnings = []
    if not others and not self_signed:
        warnings.append("The chain has no intermediate certificate: most clients need it to trust this certificate.")
    for each in others:
        if each.not_valid_after_utc.timestamp() <= now:
            warnings.append(f"{_name(each.subject)} in the chain has expired.")
    return CertificateFacts(
        subject=_name(first.subject), issuer=_name(first.issuer), names=names, not_before=begins, not_after=ends,
        fingerprint=first.fingerprint(hashes.SHA256()).hex(), key_type=_key_type(first),
        chain=[_name(each.subject) for each in others], self_signed=self_signed, warnings=warnings,
    )  # fmt: skip


def _is_server(certificate: x509.Certificate) -> bool:
    """Returns False for a certificate of an authority that did not sign itself."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        return True
    return not constraints.ca or bool(names_of(certificate))


def names_of(certificate: x509.Certificate) -> list[str]:
    """Returns the names and addresses in subjectAltName."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    addresses = [str(each) for each in found.get_values_for_type(x509.IPAddress)]
    return [*found.get_values_for_type(x509.DNSName), *addresses]


def _name(name: x509.Name) -> str:
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(common[0].value) if common else name.rfc4514_string() or "without a name"


def _key_type(certificate: x509.Certificate) -> str:
    public = certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        return f"RSA {public.key_size}"
    if isinstance(public, ec.EllipticCurvePublicKey):
        return f"ECDSA {_CURVES.get(public.curve.name, public.curve.name)}"
    return (
        "Ed25519"
        if isinstance(public, ed25519.Ed25519PublicKey)
        else "Ed448"
        if isinstance(public, ed448.Ed448PublicKey)
        else "other"
    )


# -- made here


def new_certificate(names: Sequence[str], days: int, now: float) -> tuple[bytes, bytes]:
    """Returns a certificate that its key has signed, and the key. Raises ContentFault."""
    key, subject = _new_key(), _subject(names)
    begins = datetime.datetime.fromtimestamp(now, datetime.UTC)
    builder = x509.CertificateBuilder(
        subject_name=subject, issuer_name=subject, public_key=key.public_key(), serial_number=x509.random_serial_number(),
        not_valid_before=begins - datetime.timedelta(hours=1), not_valid_after=begins + datetime.timedelta(days=days),
    )  # fmt: skip
    certificate = (
        builder.add_extension(_alternative(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _private(key)


def new_request(names: Sequence[str]) -> tuple[bytes, bytes]:
    """Returns a request for a certificate (PKCS #10, RFC 2986), and its key. Raises ContentFault."""
    key = _new_key()
    builder = x509.CertificateSigningRequestBuilder(_subject(names))
    request = builder.add_extension(_alternative(names), critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM), _private(key)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())  # every client of today knows it, and it is fast


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(names: Sequence[str]) -> x509.Name:
    if not names:
        raise ContentFault("names", "must have one name or more, such as mail.example.org")
    short = next((name for name in names if len(name) <= 64), None)  # RFC 5280: ub-common-name
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, short)] if short else [])


def _alternative(names: Sequence[str]) -> x509.SubjectAlternativeName:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(found)


# -- DKIM


def new_dkim(algorithm: str) -> SigningKey:
    """Makes a key."""
    return new_key(algorithm)


def load_dkim(data: bytes) -> SigningKey:
    """Reads a kept key. Raises BadKey."""
    return key_of_pem(data)


def dkim_facts(key: SigningKey, domain: str, selector: str) -> DkimFacts:
    """Returns the key's DNS record, whole, in parts, and as a line of a zone file."""
    name = f"{selector}._domainkey.{domain}"
    parts = [key.record[at : at + STRING_MAX] for at in range(0, len(key.record), STRING_MAX)]
    quoted = " ".join(f'"{part}"' for part in parts)
    return DkimFacts(
        domain=domain, selector=selector, algorithm=key.algorithm, record_name=name, record=key.record, strings=parts,
        zone_line=f"{name}. IN TXT ( {quoted} )",
    )  # fmt: skip
