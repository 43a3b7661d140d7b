"""The times of a certificate are read as OpenSSL's library reads them, from any signer's DER."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mailcore.config.certificates import CertificateError, load_pair, validity
from tests.doctor.sample_host import certificate


@pytest.mark.parametrize("days_left", [1, 90, 365 * 40])  # the last one has a GeneralizedTime
def test_the_times_are_those_of_the_certificate(tmp_path: Path, days_left: int) -> None:
    pem = certificate(tmp_path, "mail.example.org", days_left)
    expected = x509.load_pem_x509_certificate(pem.read_bytes())
    loaded = load_pair(str(pem), str(pem))
    assert loaded.not_before == expected.not_valid_before_utc.timestamp()
    assert loaded.not_after == expected.not_valid_after_utc.timestamp()
    assert isinstance(loaded.context, ssl.SSLContext)


def test_what_is_cut_off_is_refused(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "mail.example.org", 90)
    der = x509.load_pem_x509_certificate(pem.read_bytes()).public_bytes(Encoding.DER)
    times = validity(der)
    assert times[1] - times[0] == datetime.timedelta(days=150).total_seconds()
    for length in range(0, 160, 7):
        with pytest.raises(ValueError, match=r"cut off|time data|validity|ascii"):
            validity(der[:length])


def test_files_that_do_not_fit_say_why(tmp_path: Path) -> None:
    first = certificate(tmp_path, "mail.example.org", 90)
    other = certificate(tmp_path, "other.example.org", 90)
    with pytest.raises(CertificateError, match="KEY_VALUES_MISMATCH"):
        load_pair(str(first), str(other))
    with pytest.raises(CertificateError, match="cannot be read") as error:
        load_pair(str(first), str(tmp_path / "none.pem"))
    assert (error.value.is_file, error.value.is_key) == (True, True)
