"""The names in the portal's own certificate: those by which browsers may address it."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

__all__ = ["names_of_certificate"]


def names_of_certificate(path: str) -> list[str]:
    """Returns its names and addresses, as Django's ALLOWED_HOSTS has them; [] if it cannot be read, which ``serve`` reports."""
    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    names = [name.removeprefix("*") for name in found.get_values_for_type(x509.DNSName)]
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*names, *(f"[{each}]" if each.version == 6 else str(each) for each in addresses)]
