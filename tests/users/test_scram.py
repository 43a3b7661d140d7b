"""SCRAM-SHA-256 against the example of RFC 7677, and against clients that break the protocol."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from mailcore.users.scram import ScramError, ScramExchange, ScramVerifier

NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = ScramVerifier.of_password("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)


def exchange() -> ScramExchange:
    return ScramExchange(NONCE, lambda name: VERIFIER)


def test_the_example_of_rfc_7677() -> None:
    server = exchange()
    assert server.first(FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.final(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.name == "user"


def test_the_verifier_is_written_and_read() -> None:
    assert ScramVerifier.parse(str(VERIFIER)) == VERIFIER
    assert VERIFIER.matches("pencil")
    assert not VERIFIER.matches("Pencil")


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=user,r=abc",  # the client wants a channel binding
        b"p=tls-exporter,,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",  # it wants to act for another user
        b"n,,m=ext,n=user,r=abc",  # an extension that is mandatory
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=us=2Xer,r=abc",
        b"n,,n=user,r=a\x00b",
        b"x,,n=user,r=abc",
        b"\xff",
        b"",
    ],
)
def test_a_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(ScramError):
        exchange().first(first)


@pytest.mark.parametrize("first", [b"y,,n=user,r=abc", b"n,a=user,n=user,r=abc", b"n,,n=user,r=abc,x=1"])
def test_a_first_message_is_taken(first: bytes) -> None:
    assert exchange().first(first).startswith(b"r=abc%hvYDpWUa2")


def proved(first: bytes, answer: bytes, unproved: bytes, password: str = "pencil") -> bytes:
    """The client's side, from RFC 5802 3."""
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = first.split(b",", 2)[2]
    signature = hmac.digest(hashlib.sha256(client_key).digest(), b",".join([bare, answer, unproved]), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return unproved + b",p=" + base64.b64encode(proof)


def test_the_client_of_this_test_agrees_with_the_rfc() -> None:
    server = exchange()
    answer = server.first(FIRST)
    assert proved(FIRST, answer, FINAL.rpartition(b",")[0]) == FINAL


@pytest.mark.parametrize(
    ("header", "change"),
    [
        (b"y,,", b"c=biws,"),  # the header of the final message is not that of the first: a downgrade
        (b"n,,", b"c=eSws,"),
        (b"n,,", b"r=rOprNGfwEbeRWgbNEkqO"),  # the nonce of the client alone
    ],
)
def test_a_final_message_of_another_exchange_is_refused(header: bytes, change: bytes) -> None:
    server = exchange()
    first = header + FIRST[3:]
    answer = server.first(first)
    nonce = answer.split(b",")[0]
    unproved = (change + nonce) if change.startswith(b"c=") else b"c=biws," + change
    with pytest.raises(ScramError):
        server.final(proved(first, answer, unproved))


def test_a_wrong_password_is_no_error_of_the_protocol() -> None:
    server = exchange()
    answer = server.first(FIRST)
    nonce = answer.split(b",")[0]
    assert server.final(proved(FIRST, answer, b"c=biws," + nonce, "wrong")) is None
    assert server.final(proved(FIRST, answer, b"c=biws," + nonce)) is not None


@pytest.mark.parametrize(
    "text", ["", "SCRAM-SHA-256$4096:AA==$AA==:AA==", str(VERIFIER).replace("4096", "1000"), f"{VERIFIER}x"]
)
def test_a_damaged_verifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"SCRAM|iterations|base64"):
        ScramVerifier.parse(text)
