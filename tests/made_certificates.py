"""Certificates and keys as an authority would give them, made in memory: a chain, its key, and what is wrong with others."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Issued", "pem_key"]

Key = ec.EllipticCurvePrivateKey


class Issued(NamedTuple):
    """A certificate as PEM, and its private key as PEM."""

    certificate: str
    key: str


def pem_key(key: Key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@dataclass
class Authority:
    """An authority that signs certificates; ``pem`` is its own."""

    name: str = "Test CA"

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._signed(self.name, self._key, (), -30, 365, is_ca=True)

    def issue(self, *names: str, begins_d: float = -1, ends_d: float = 90, key: Key | None = None) -> Issued:
        own = key or ec.generate_private_key(ec.SECP256R1())
        subject = names[0] if names else "nobody"
        return Issued(self._signed(subject, own, names, begins_d, ends_d, is_ca=False), pem_key(own))

    def sign_request(self, request: str, ends_d: float = 90) -> str:
        """Returns the certificate for a request, as the authority would."""
        asked = x509.load_pem_x509_csr(request.encode())
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        now = datetime.datetime.now(datetime.UTC)
        built = (
            x509.CertificateBuilder(
                subject_name=asked.subject, issuer_name=_name(self.name), public_key=asked.public_key(),
                serial_number=x509.random_serial_number(), not_valid_before=now - datetime.timedelta(days=1),
                not_valid_after=now + datetime.timedelta(days=ends_d),
            )
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )  # fmt: skip
        return built.public_bytes(serialization.Encoding.PEM).decode()

    def _signed(
        self, subject: str, key: Key, names: tuple[str, ...], begins_d: float, ends_d: float, *, is_ca: bool
    ) -> str:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            subject_name=_name(subject), issuer_name=_name(self.name), public_key=key.public_key(),
            serial_number=x509.random_serial_number(), not_valid_before=now + datetime.timedelta(days=begins_d),
            not_valid_after=now + datetime.timedelta(days=ends_d),
        ).add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)  # fmt: skip
        if names:
            alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(alternative, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
