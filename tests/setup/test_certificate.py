"""The certificates that a host makes for itself: what is in them, who may read their keys, and when there is a new one."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import ssl
import threading
import time
from pathlib import Path

from cryptography import x509

from appliance.common.certificate import names_of_certificate
from mailcore.config.certificates import load_pair
from mailcore.setup.certificate import DAYS, RENEW_DAYS, fingerprint, is_due, make

NAMES = ["mail.example.org", "192.0.2.5", "2001:db8::5"]
DAY_S = 86_400
NOW = float(int(time.time()))
US = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name


def made(place: Path, at: float = NOW, names: list[str] | None = None) -> tuple[Path, Path]:
    pair = place / "certificate.pem", place / "key.pem"
    make(*pair, names or NAMES, US, 0o600, at)
    return pair


def test_a_server_can_use_it_and_it_ends_after_397_days(tmp_path: Path) -> None:
    certificate, key = made(tmp_path)
    loaded = load_pair(str(certificate), str(key))
    assert loaded.not_before < NOW
    assert round((loaded.not_after - loaded.not_before) / DAY_S, 3) == DAYS


def test_only_its_owner_may_read_the_key(tmp_path: Path) -> None:
    _, key = made(tmp_path)
    assert key.stat().st_mode & 0o7777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.pem", "key.pem"]


def test_a_client_that_trusts_it_accepts_each_name(tmp_path: Path) -> None:
    certificate, key = made(tmp_path)
    server = load_pair(str(certificate), str(key)).context
    for name in NAMES:
        client = ssl.create_default_context(cafile=str(certificate))
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        ours, theirs = socket.socketpair()
        with ours, theirs:
            thread = threading.Thread(target=lambda end=theirs: server.wrap_socket(end, server_side=True).close())
            thread.start()
            with client.wrap_socket(ours, server_hostname=name) as spoken:
                assert spoken.version() == "TLSv1.3"
            thread.join()


def test_the_portal_answers_to_the_names_in_it(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path, names=[*NAMES, "*.example.net"])
    assert names_of_certificate(str(certificate)) == [
        "mail.example.org", ".example.net", "192.0.2.5", "[2001:db8::5]",
    ]  # fmt: skip
    assert names_of_certificate(str(tmp_path / "none.pem")) == []


def test_a_name_too_long_for_the_subject_is_among_the_names(tmp_path: Path) -> None:
    name = f"{'a' * 60}.{'b' * 60}.example"
    certificate, _ = made(tmp_path, names=[name])
    assert names_of_certificate(str(certificate)) == [name]


def test_it_is_made_when_it_is_missing_and_again_before_it_ends(tmp_path: Path) -> None:
    assert is_due(tmp_path / "certificate.pem", NOW)
    certificate, _ = made(tmp_path)
    assert not is_due(certificate, NOW)
    assert not is_due(certificate, NOW + (DAYS - RENEW_DAYS - 1) * DAY_S)
    assert is_due(certificate, NOW + (DAYS - RENEW_DAYS + 1) * DAY_S)


def test_one_that_somebody_else_made_is_never_made_again(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path)
    text = certificate.read_bytes()
    der = ssl.PEM_cert_to_DER_cert(text.decode())
    other = der.replace(b"Waypost, made by this host", b"Another company of this ho")
    certificate.write_text(ssl.DER_cert_to_PEM_cert(other))
    assert not is_due(certificate, NOW + 10 * DAYS * DAY_S)


def test_the_fingerprint_is_the_one_that_browsers_show(tmp_path: Path) -> None:
    certificate, _ = made(tmp_path)
    found = fingerprint(certificate)
    assert len(found) == 95
    from_library = x509.load_pem_x509_certificate(certificate.read_bytes())
    assert bytes.fromhex(found.replace(":", "")) == from_library.fingerprint(from_library.signature_hash_algorithm)  # type: ignore[arg-type]
