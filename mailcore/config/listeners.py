"""[[listener]], [[certificate]] and [auth]: the addresses that receivers listen on, their TLS, and the logins of clients.

`[receiver] listen` is the short form of a listener with all defaults.

Keeps law: auth-only-under-tls (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mailcore.bounds import choice, text, texts, whole
from mailcore.config import values
from mailcore.config.ehlo_keywords import DiscardsKeywords
from mailcore.config.milters import list_of_milters, macro_value

__all__ = ["LISTENERS_MAX", "MX", "SUBMISSION", "Auth", "Certificate", "Listener", "listener_faults"]

LISTENERS_MAX = 64  # each is a socket in every receiver


@dataclass(frozen=True, kw_only=True)
class Listener(DiscardsKeywords):
    """[[listener]]: one address that receivers listen on, with a purpose. Repeat the section for each address."""

    address: str = text("", "address and port to listen on, an IPv6 address in brackets", values.endpoint)
    purpose: str = choice(
        "mx",
        ("mx", "submission"),
        "mx: mail from other servers, for [relay] domains; submission: mail from our own users, to any domain",
    )
    tls: str = choice(
        "starttls",
        ("none", "starttls", "required", "implicit"),
        "not offered; STARTTLS if the client wants it; refuse mail before STARTTLS; from the first byte (port 465). "
        "Without this key a submission listener has required",
    )
    auth: str = choice(
        "off",
        ("off", "offered", "required"),
        "login of clients, always under TLS. Without this key a submission listener has required",
    )
    milters: tuple[str, ...] = list_of_milters(
        "milters of this address, as in [receiver]. Without this key it has those of [receiver]; [] is none"
    )
    milter_macro_daemon_name: str = text(
        "",
        "value of the macro {daemon_name} for milters, as Postfix's; OpenDKIM's MTA names it (ORIGINATING)",
        macro_value,
        special={"": "our name"},
    )
    proxy: tuple[str, ...] = texts(
        (),
        "networks of load balancers in front of this address. Their connections must begin with a PROXY header (version 1 "
        "or 2), which names the client. From any other client such a header is a wrong command",
        values.network,
        values.refuse_open_relay,
    )


MX = Listener()  # an address in ``[receiver] listen``
SUBMISSION = {"tls": "required", "auth": "required"}  # for keys that the file leaves out


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """[[certificate]]: a certificate for clients that ask for one of its names (SNI). Others get that of [receiver]."""

    names: tuple[str, ...] = texts(
        (), 'names that clients ask for, such as "mail.example.org" or "*.example.org"', values.server_name
    )
    certificate: str = text("", "PEM file with the certificate chain")
    key: str = text("", "PEM file with the private key")


@dataclass(frozen=True, kw_only=True)
class Auth:
    """[auth]: logins of clients. The users are in `users.jsonl` below `home`; `waypost user` changes them."""

    messages_per_hour: int = whole(
        1000, 0, 10_000_000, "messages", "maximum messages of a user in an hour; further ones get 450",
        special={0: "no limit"},
    )  # fmt: skip
    recipients_per_hour: int = whole(
        10_000, 0, 100_000_000, "recipients", "maximum recipients of a user in an hour; further ones get 450",
        special={0: "no limit"},
    )  # fmt: skip
    failures_per_network: int = whole(
        30, 1, 1_000_000, "failures",
        "failed logins of one network (IPv4 /24, IPv6 /64) in failure_time_s, after which its logins get 454",
    )  # fmt: skip
    failures_per_user: int = whole(
        20, 1, 1_000_000, "failures",
        "failed logins with one user name in failure_time_s, after which its logins get 454. From networks where the user "
        "has logged in before, both limits are ten times as high",
    )  # fmt: skip
    failure_time_s: int = whole(600, 1, 86_400, "seconds", "time after which failed logins are forgotten")
    password_threads: int = whole(
        2, 1, 64, "threads", "passwords that one process checks at once; each takes 64 MiB of memory"
    )
    passwords_waiting_max: int = whole(
        64,
        1,
        10_000,
        "logins",
        "maximum logins that wait for such a check; further ones get 454. Half of the places are for users who logged in from "
        "their network within 30 days",
    )


def listener_faults(
    listeners: Sequence[Listener], short: Sequence[str], has_certificate: bool
) -> Iterator[tuple[int, str, str]]:
    """Yields number, key and reason of each listener that contradicts itself, another one, or ``[receiver] listen``."""
    taken = dict.fromkeys(short, "[receiver] listen")
    for number, listener in enumerate(listeners):
        if not listener.address:
            yield number, "address", 'must be set, such as "0.0.0.0:587"'
        elif listener.address in taken:
            yield (
                number,
                "address",
                f"must be an address of its own; {listener.address} is in {taken[listener.address]}",
            )
        taken[listener.address] = "another [[listener]]"
        if "STARTTLS" in listener.discard_ehlo_keywords and listener.tls == "required":
            yield number, "discard_ehlo_keywords", 'must not have STARTTLS, because tls = "required" needs it'
        if listener.auth != "off" and listener.tls == "none":
            yield number, "auth", 'needs TLS, so that no password is sent in the clear; set tls to "required"'
        elif not has_certificate and (listener.tls in ("required", "implicit") or listener.auth != "off"):
            yield number, "tls", "needs a certificate; set tls_certificate and tls_key in [receiver]"
    if len(listeners) > LISTENERS_MAX:
        yield LISTENERS_MAX, "address", f"is one too many; at most {LISTENERS_MAX} listeners are allowed"
