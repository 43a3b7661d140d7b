"""A certificate and its private key as a server would use them: loaded, or the reason why they cannot be used."""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl

__all__ = ["CertificateError", "Loaded", "Pair", "load_content", "load_pair", "not_after", "validity"]

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_WORDS = {  # OpenSSL's names of what happens most
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate (KEY_VALUES_MISMATCH)",
}
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17  # tags of DER, X.690 8; RFC 5280 4.1


class Pair(NamedTuple):
    """The files of a certificate and its key, and the names for which clients get it; no names: for all others."""

    names: tuple[str, ...]
    certificate: str
    key: str


class Loaded(NamedTuple):
    """A pair that a server can use. Times are seconds since 1970."""

    context: ssl.SSLContext
    not_before: float
    not_after: float


class CertificateError(Exception):
    """A pair that cannot be used; the message says why. ``is_file``: a file cannot be read; ``is_key``: that of the key."""

    def __init__(self, reason: str, *, is_file: bool = False, is_key: bool = False) -> None:
        super().__init__(reason)
        self.is_file = is_file
        self.is_key = is_key


def load_pair(certificate: str, key: str) -> Loaded:
    """Loads both files. Raises CertificateError; an expired certificate is loaded, the caller judges its times."""
    _read(key, is_key=True)
    return _load(certificate, key, _read(certificate, is_key=False))


def not_after(certificate: str) -> float:
    """Returns when the certificate in a file expires, without its key. Raises CertificateError."""
    import ssl  # as below

    found = _PEM.search(_read(certificate, is_key=False))
    if found is None:
        raise CertificateError(f"is not in PEM format: {certificate}")
    try:
        return validity(ssl.PEM_cert_to_DER_cert(found.group().decode("ascii")))[1]
    except ValueError as error:
        raise CertificateError(f"cannot be read: {certificate}: {error}") from None


def load_content(certificate: bytes, key: bytes) -> Loaded:
    """Loads what was in both files; no file with a name is made for it. Raises CertificateError."""
    with contextlib.ExitStack() as stack:
        names = []
        for content in (certificate, key):  # OpenSSL is given names of files
            descriptor = os.memfd_create("waypost-pair")
            stack.callback(os.close, descriptor)
            os.pwrite(descriptor, content, 0)
            names.append(f"/proc/self/fd/{descriptor}")
        return _load(names[0], names[1], certificate)


def _load(certificate: str, key: str, content: bytes) -> Loaded:
    import ssl  # each command loads the settings, and few of them a certificate

    found = _PEM.search(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # An encrypted key must fail here: a daemon cannot ask for the passphrase.
        context.load_cert_chain(certificate, key, password=lambda: "")
        if found is None:
            raise ValueError("no certificate")
        return Loaded(context, *validity(ssl.PEM_cert_to_DER_cert(found.group().decode("ascii"))))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or str(error)
        if isinstance(error, ssl.SSLError) and not error.reason:  # OpenSSL gives no reason when it finds no PEM block
            reason = f"the {'key' if found else 'certificate'} is not in PEM format"
        raise CertificateError(_WORDS.get(reason, reason)) from None


def _read(name: str, *, is_key: bool) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CertificateError(f"cannot be read: {name}: {reason}", is_file=True, is_key=is_key) from None


def validity(der: bytes) -> tuple[float, float]:
    """Returns the times from and until which a certificate is valid. Raises ValueError.

    It reads the DER (RFC 5280 4.1) up to that field: a library for it would cost each receiver 10 MB.
    """
    try:
        _, certificate, _ = _element(der, 0)
        _, body, _ = _element(certificate, 0)
        tag, _, at = _element(body, 0)
        for _ in range(3 if tag == _VERSION else 2):  # serial number, algorithm, issuer
            _, _, at = _element(body, at)
        tag, times, _ = _element(body, at)
        if tag != _SEQUENCE:
            raise ValueError("the certificate has no validity")
        first, begins, at = _element(times, 0)
        second, ends, _ = _element(times, at)
        return _time(first, begins), _time(second, ends)
    except IndexError:
        raise ValueError("the certificate is cut off") from None


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Returns tag and content of the element at ``at``, and where the next one begins. Raises IndexError."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[at : at + count], "big")
        at += count
    if at + length > len(data):
        raise IndexError
    return tag, data[at : at + length], at + length


def _time(tag: int, content: bytes) -> float:
    """Reads UTCTime or GeneralizedTime (RFC 5280 4.1.2.5): a year of two digits is in 1950 to 2049."""
    written = content.decode("ascii")
    if tag == _UTC_TIME:
        written = ("20" if written[:2] < "50" else "19") + written
    return calendar.timegm(time.strptime(written, "%Y%m%d%H%M%SZ"))
