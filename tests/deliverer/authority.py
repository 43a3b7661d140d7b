"""A certificate authority made in the test, and certificates of it with any name, time or fault."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Issued:
    """A certificate with its key; ``chain`` is sent behind it."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, chain: tuple[Issued, ...]
    ) -> None:
        self.certificate = certificate
        self.key = key
        self.chain = chain

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def spki(self) -> bytes:
        return self.certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def server(self, directory: Path) -> ssl.SSLContext:
        """The context of a server with this certificate."""
        pem = directory / f"server.{self.certificate.serial_number}.pem"
        pem.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self.pem
            + b"".join(each.pem for each in self.chain)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


class Authority(Issued):
    """A CA that signs itself, or one below ``parent``."""

    def __init__(self, directory: Path, name: str = "Test CA", parent: Authority | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        signer, issuer = (parent.key, parent.certificate.subject) if parent is not None else (key, _name(name))
        builder = _builder(_name(name), issuer, key, -DAY, 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
        )
        above = parent.key.public_key() if parent is not None else key.public_key()
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above), critical=False)
        super().__init__(builder.sign(signer, hashes.SHA256()), key, ())
        self.file = directory / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(self.pem)
        self.parent = parent

    def issue(
        self,
        *names: str,
        common_name: str = "",
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 30 * DAY,
        self_signed: bool = False,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Issued:
        """A server's certificate for ``names`` (in subjectAltName; none: no such extension), with a new key or ``key``."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = _name(common_name or "server")
        issuer = subject if self_signed else self.certificate.subject
        builder = _builder(subject, issuer, key, begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        signer = key if self_signed else self.key
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        chain = (self,) if self.parent is not None and not self_signed else ()
        return Issued(builder.sign(signer, hashes.SHA256()), key, chain)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.timedelta,
    ends: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
