"""The section [receiver]: the SMTP server."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import text, texts, whole
from mailcore.config import values
from mailcore.config.client_bounds import ClientBounds
from mailcore.config.ehlo_keywords import DiscardsKeywords
from mailcore.config.milters import MilterUse

__all__ = ["Receiver"]


@dataclass(frozen=True, kw_only=True)
class Receiver(ClientBounds, MilterUse, DiscardsKeywords):
    """[receiver]: the SMTP server."""

    listen: tuple[str, ...] = texts(
        ("127.0.0.1:2525",),
        "addresses and ports to listen on, an IPv6 address in brackets",
        values.endpoint,
        values.no_repeats,
    )
    processes: int = whole(1, 1, 64, "processes", "receiver processes that share the ports")
    hostname: str = text(
        "",
        "our name in the greeting, in Received and in reports, and in EHLO unless [deliverer] hostname is set",
        values.host_name,
        special={"": "the name of this host"},
    )
    message_size_limit: int = whole(
        52_428_800, 1024, 1 << 32, "bytes", "maximum message size, announced by SIZE; a larger message gets 552"
    )
    recipient_limit: int = whole(
        1000,
        1,
        1_000_000,
        "recipients",
        "maximum recipients of one message; further ones get 452 (RFC 5321 4.5.3.1.8: at least 100)",
    )
    command_line_limit: int = whole(
        2048, 512, 65_536, "bytes", "maximum length of a command line, as Postfix's line_length_limit"
    )
    error_limit: int = whole(
        20, 1, 1000, "errors", "errors in one session after which it gets 421, as Postfix's smtpd_hard_error_limit"
    )
    received_limit: int = whole(
        50, 1, 1000, "lines", "Received lines of a message that is refused as a loop, as Postfix's hopcount_limit"
    )
    tag_header: str = text(
        "",
        "header field whose value (its first 128 characters) reports group mail by, such as X-Campaign",
        values.field_name,
        special={"": "mail has no tags"},
    )
    message_drop_headers: tuple[str, ...] = texts(
        ("bcc", "content-length", "resent-bcc", "return-path"),
        "header fields that are removed from mail of all clients and local programs, after header checks and before milters; "
        "empty: none",
        values.dropped_field,
        values.distinct,
    )
    idle_timeout_s: int = whole(
        300, 1, 3600, "seconds", "time without a byte after which a session gets 421 (RFC 5321 4.5.3.2.7)"
    )
    tls_certificate: str = text("", "PEM file with the certificate chain; STARTTLS is offered when it is set")
    tls_key: str = text("", "PEM file with the private key")
