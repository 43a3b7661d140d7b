"""Signatures as another program sees them: dkimpy verifies, and refuses each change."""

from __future__ import annotations

from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mailcore.dkim.canonical import BodyHash, fields_of
from mailcore.dkim.key import ALGORITHMS, BadKey, SigningKey, load_key, new_key
from mailcore.dkim.signature import Signer, author_domain, signature

HEADER = (
    b"Received: from client (client [192.0.2.1]); Mon, 23 Nov 2026 10:00:00 +0000\r\n"
    b"From: Alice <alice@example.org>\r\n"
    b"To: bob@example.net,\r\n\tcarol@example.net\r\n"
    b"Subject:  An  offer \r\n"
    b"Date: Mon, 23 Nov 2026 10:00:00 +0000\r\n"
    b"Message-ID: <1@example.org>\r\n"
    b"List-Unsubscribe: <mailto:off@example.org>"
)
BODY = b"Hello  Bob,\r\n\r\n.. dots \r\n\r\n\r\n"
NOW = 1_795_000_000.0


def signed(key: SigningKey, header: bytes = HEADER, body: bytes = BODY, selector: str = "2026a") -> bytes:
    hashed = BodyHash()
    hashed.feed(body.replace(b"\r\n.", b"\r\n.."))
    made = signature(fields_of(header), hashed.digest(), Signer("example.org", selector, key), NOW)
    return made + header + b"\r\n\r\n" + body


def verified(message: bytes, *keys: tuple[str, SigningKey]) -> bool:
    records = {f"{selector}._domainkey.example.org.": key.record for selector, key in keys}

    def dns(name: bytes, timeout: int = 5) -> bytes | None:
        record = records.get(name.decode())
        return record.encode() if record else None

    found: bool = dkim.verify(message, dnsfunc=dns)
    return found


@pytest.fixture(scope="module", params=ALGORITHMS)
def key(request: pytest.FixtureRequest) -> SigningKey:
    return new_key(request.param)


def test_another_program_verifies(key: SigningKey) -> None:
    assert verified(signed(key), ("2026a", key))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"alice@", b"mallory@"),
        (b"An  offer", b"Another offer"),
        (b"Hello", b"Goodbye"),
        (b"mailto:off", b"mailto:on"),
        (b"From: Alice", b"From: mallory@example.com\r\nFrom: Alice"),
        (b"Subject:", b"Subject: in front\r\nSubject:"),
        (b"To: bob", b"To: eve@example.com\r\nTo: bob"),
        (b"Message-ID:", b"Cc: eve@example.com\r\nMessage-ID:"),
    ],
)
def test_each_change_is_seen(key: SigningKey, old: bytes, new: bytes) -> None:
    message = signed(key)
    assert old in message
    assert not verified(message.replace(old, new, 1), ("2026a", key))


@pytest.mark.parametrize(
    ("old", "new"), [(b"An  offer ", b"An offer"), (b"Hello  Bob", b"Hello Bob"), (b".net,\r\n\tcarol", b".net, carol")]
)
def test_white_space_may_change_on_the_way(key: SigningKey, old: bytes, new: bytes) -> None:
    message = signed(key)
    assert old in message
    assert verified(message.replace(old, new, 1), ("2026a", key))


def test_two_keys_make_two_signatures_that_hold() -> None:
    keys = [("2026a", new_key("rsa")), ("2026b", new_key("ed25519"))]
    hashed = BodyHash()
    hashed.feed(BODY.replace(b"\r\n.", b"\r\n.."))
    fields, digest = fields_of(HEADER), hashed.digest()
    made = [signature(fields, digest, Signer("example.org", selector, key), NOW) for selector, key in keys]
    message = b"".join(made) + HEADER + b"\r\n\r\n" + BODY
    for selector, key in keys:
        index = [selector for selector, _ in keys].index(selector)
        records = {f"{selector}._domainkey.example.org.".encode(): key.record.encode()}
        assert dkim.DKIM(message).verify(idx=index, dnsfunc=lambda name, timeout=5, r=records: r.get(name))


def test_its_lines_are_short_and_end_in_crlf(key: SigningKey) -> None:
    field = signed(key)[: -len(HEADER + b"\r\n\r\n" + BODY)]
    assert field.endswith(b"\r\n")
    lines = field.split(b"\r\n")[:-1]
    assert max(map(len, lines)) <= 78
    assert all(line.startswith(b"\t") for line in lines[1:])
    assert b"\n" not in field.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    ("header", "domain"),
    [
        (b"From: a@Example.ORG", "example.org"),
        (b'From: "a@other.example" <a@example.org>', "example.org"),
        (b"From: Alice\r\n <a@example.org>", "example.org"),
        ("From: a@b\u00fccher.example".encode(), "xn--bcher-kva.example"),
        (b"From: a@example.org\r\nFrom: b@example.org", ""),
        (b"From: a@example.org, b@example.net", ""),
        (b"From: nobody", ""),
        (b"From:", ""),
        (b"Subject: none", ""),
        (b"From: \xff\xfe <>", ""),
        (
            b"From: a@example.org " + b"(" * 20_000,
            "",
        ),  # once a RecursionError, and the mail was deferred until it expired
    ],
)
def test_the_author_is_the_one_address_of_the_one_from_field(header: bytes, domain: str) -> None:
    assert author_domain(fields_of(header)) == domain


# -- keys


def test_a_key_is_read_as_it_was_written(tmp_path: Path, key: SigningKey) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(key.pem)
    file.chmod(0o640)
    assert load_key(str(file)).record == key.record


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "cannot be read: No such file"),
        (b"no key", 0o640, "no private key in PEM form"),
        ("2026", 0o644, "chmod 640"),
        ("small", 0o640, "2000 bits or more"),
        ("ec", 0o640, "or an Ed25519 key"),
        ("encrypted", 0o640, "is encrypted"),
    ],
)
def test_a_key_that_cannot_be_used_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str | None, mode: int, reason: str
) -> None:
    monkeypatch.setattr("mailcore.dkim.key.RSA_BITS_MIN", 2000)  # OpenSSL makes none below 1024 any more

    def pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

    file = tmp_path / "key.pem"
    made = {
        "2026": lambda: new_key("ed25519").pem,
        "small": lambda: pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        "ec": lambda: pem(ec.generate_private_key(ec.SECP256R1())),
        "encrypted": lambda: pem(rsa.generate_private_key(public_exponent=65537, key_size=1024), b"secret"),
    }
    if content is not None:
        file.write_bytes(made[content]() if isinstance(content, str) else content)
        file.chmod(mode)
    with pytest.raises(BadKey, match=reason):
        load_key(str(file))
