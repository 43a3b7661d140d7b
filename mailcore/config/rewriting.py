"""The section [rewriting]: files with aliases and canonical addresses.

Values only: ``mailcore.config.maps`` reads the files, because a text must be checkable with Python alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.bounds import bad, choice, flag, text, texts, whole
from mailcore.config import values
from mailcore.config.map_file import REGEXP, map_or_pattern_file, pattern_file

__all__ = ["CLASSES", "MAPS", "REGEXP", "Rewriting", "absolute"]

MAPS = (
    "sender_canonical_maps",
    "recipient_canonical_maps",
    "canonical_maps",
    "virtual_alias_maps",
    "sender_bcc_maps",
    "recipient_bcc_maps",
)
CLASSES = ("envelope_sender", "envelope_recipient", "header_sender", "header_recipient")
NETWORKS, LOGINS = "networks", "logins"  # of local_header_rewrite_clients
_FORM = "each a path, or regexp: and a path for regular expressions"


def _class(given: str) -> str:
    if given not in CLASSES:
        raise bad(given, f"must be one of {', '.join(CLASSES)}")
    return given


def _client(given: str) -> str:
    return given if given in (NETWORKS, LOGINS) else values.network(given)


def _delimiter(given: str) -> str:
    if len(given) > 2 or not set(given) <= set("+-=_."):
        raise bad(given, 'must be one or two of the characters + - = _ . such as "+"')
    return given


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """[rewriting]: aliases and canonical addresses of mail that clients send, in files that are read again when they change."""

    sender_canonical_maps: tuple[str, ...] = texts(
        (), f"files with canonical addresses of senders; {_FORM}", map_or_pattern_file, values.distinct
    )
    recipient_canonical_maps: tuple[str, ...] = texts(
        (), "files with canonical addresses of recipients", map_or_pattern_file, values.distinct
    )
    canonical_maps: tuple[str, ...] = texts(
        (), "files with canonical addresses of both; they are asked last", map_or_pattern_file, values.distinct
    )
    canonical_classes: tuple[str, ...] = texts(
        CLASSES, f"uses of canonical addresses: {', '.join(CLASSES)}", _class, values.distinct
    )
    local_header_rewrite_clients: tuple[str, ...] = texts(
        ("127.0.0.0/8", "::1/128"),
        "clients in whose header fields canonical addresses are used, and addresses without a domain get `[lenient] domain`, "
        "and for whose mail From, Date and Message-ID are added if they are missing: "
        "networks, networks for [relay] networks, or logins for users who have logged in; it is always done for local programs",
        _client,
        values.distinct,
    )
    always_add_missing_headers: bool = flag(
        False, "add From, Date and Message-ID that are missing to mail of all clients, not only of the ones above"
    )
    header_checks: tuple[str, ...] = texts(
        (), "files of patterns that are compared with each header field; each a path", pattern_file, values.distinct
    )
    header_size_limit: int = whole(102_400, 1_000, 10_000_000, "bytes", "bytes of a header field that are compared")
    header_checks_time_ms: int = whole(1_000, 1, 10_000, "ms", "time for all patterns and all fields of one message")
    header_checks_timeout_action: str = choice(
        "tempfail",
        ("tempfail", "accept"),
        "reply to mail whose header takes longer: 451, or 250 without further checks",
    )
    virtual_alias_maps: tuple[str, ...] = texts(
        (), "files with aliases: one address may stand for several", map_or_pattern_file, values.distinct
    )
    always_bcc: str = text("", "address that gets a copy of all mail", values.mailbox, special={"": "no copies"})
    sender_bcc_maps: tuple[str, ...] = texts(
        (), "files with the address that gets a copy of a sender's mail", map_or_pattern_file, values.distinct
    )
    recipient_bcc_maps: tuple[str, ...] = texts(
        (), "files with the address that gets a copy of a recipient's mail", map_or_pattern_file, values.distinct
    )
    recipient_delimiter: str = text(
        "",
        "characters that separate an extension from the user, as in user+extension@example.org; a file is asked with the "
        "extension and then without it",
        _delimiter,
        special={"": "no extensions"},
    )
    virtual_alias_recursion_limit: int = whole(1_000, 1, 10_000, "steps", "maximum nesting of aliases")
    virtual_alias_expansion_limit: int = whole(
        1_000, 1, 100_000, "addresses", "maximum addresses that one recipient may stand for; above it the mail gets 451"
    )
    recipients_max: int = whole(
        100_000, 1, 1_000_000, "recipients", "maximum recipients of a message after aliases; above it the mail gets 451"
    )

    address_maps_time_ms: int = whole(
        500,
        1,
        10_000,
        "ms",
        "time for all regular expressions and all addresses of one message; beyond it the mail gets 451. Header fields have "
        "`header_checks_time_ms`",
    )

    @property
    def is_on(self) -> bool:
        """Returns whether any address may be changed or added."""
        return bool(self.files or self.always_bcc)

    @property
    def files(self) -> tuple[str, ...]:
        """Returns the names of all files, each once."""
        return tuple(dict.fromkeys(name for each in (*MAPS, "header_checks") for name in getattr(self, each)))


def absolute(section: dict[str, Any], base: Path) -> None:
    """Makes the paths of a section absolute."""
    for each in (*MAPS, "header_checks"):
        if each in section:
            section[each] = tuple(_below(base, name) for name in section[each])


def _below(base: Path, name: str) -> str:
    prefix = REGEXP if name.startswith(REGEXP) else ""
    return f"{prefix}{base / name.removeprefix(prefix)}"
