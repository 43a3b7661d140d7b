"""The section [clients]: what receivers believe of a client, and how much it may do.

Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import flag, number, text, texts, whole
from mailcore.config import values

__all__ = ["Clients"]


@dataclass(frozen=True, kw_only=True)
class Clients:
    """[clients]: the hosts that may name a client of the receivers, and limits of what each client may do."""

    xclient_networks: tuple[str, ...] = texts(
        (),
        "networks of proxies that may name the client with XCLIENT, which then counts in everything, also as one that may send "
        "to any domain; as Postfix's smtpd_authorized_xclient_hosts",
        values.network,
        values.refuse_open_relay,
    )
    xforward_networks: tuple[str, ...] = texts(
        (),
        "networks of content filters that may name the original client for the log with XFORWARD; as Postfix's "
        "smtpd_authorized_xforward_hosts",
        values.network,
        values.refuse_open_relay,
    )
    postmaster: str = text(
        "",
        "address that gets mail for <postmaster>, and for postmaster at our own name, from every client (RFC 5321 4.5.1)",
        values.mailbox,
        special={"": "such mail is relayed to our own name, for clients that may send there"},
    )
    reverse_names: bool = flag(
        False,
        "look up the names of client addresses, for Received and the log: the PTR record, if it leads back to the address, as "
        "Postfix's smtpd_peername_lookup. No session waits for the answer",
    )
    connection_rate_limit: int = whole(
        0, 0, 10_000_000, "connections",
        "connections of a client's network in rate_time_s; further ones get 421. As Postfix's "
        "smtpd_client_connection_rate_limit",
        special={0: "no limit"},
    )  # fmt: skip
    message_rate_limit: int = whole(
        0, 0, 10_000_000, "messages",
        "MAIL commands of a client's network in rate_time_s; further ones get 450. As Postfix's "
        "smtpd_client_message_rate_limit",
        special={0: "no limit"},
    )  # fmt: skip
    recipient_rate_limit: int = whole(
        0, 0, 100_000_000, "recipients",
        "RCPT commands of a client's network in rate_time_s; further ones get 450. As Postfix's "
        "smtpd_client_recipient_rate_limit",
        special={0: "no limit"},
    )  # fmt: skip
    error_rate_limit: int = whole(
        0, 0, 10_000_000, "errors",
        "errors of a client's network in rate_time_s, after which its sessions end and new ones get 421",
        special={0: "no limit"},
    )  # fmt: skip
    rate_time_s: int = whole(60, 1, 86_400, "seconds", "period of these limits, as Postfix's anvil_rate_time_unit")
    ipv4_prefix_length: int = whole(
        32,
        1,
        32,
        "bits",
        "size of a client's network in rates and counts, as Postfix's smtpd_client_ipv4_prefix_length",
    )
    ipv6_prefix_length: int = whole(
        84,
        1,
        128,
        "bits",
        "size of a client's network in rates and counts, as Postfix's smtpd_client_ipv6_prefix_length",
    )
    junk_command_limit: int = whole(
        100, 1, 1_000_000, "commands",
        "EHLO, HELO, RSET, NOOP, VRFY and HELP without mail, after which each counts as an error, as Postfix's "
        "smtpd_junk_command_limit",
    )  # fmt: skip
    useless_command_limit: int = whole(
        1_000, 1, 1_000_000, "commands",
        "MAIL, RCPT and AUTH refused for a time (4xx), repeated recipients and empty chunks without mail, after which each "
        "counts as an error. Postfix has smtpd_recipient_overshoot_limit for recipients, and counts others at once",
    )  # fmt: skip
    soft_error_limit: int = whole(
        10, 0, 1_000_000, "errors",
        "errors without mail, after which the reply to each further error is late, as Postfix's smtpd_soft_error_limit; "
        "[receiver] error_limit ends the session",
    )  # fmt: skip
    error_sleep_time_s: float = number(
        1.0,
        0,
        60,
        "seconds",
        "how late such a reply is, as Postfix's smtpd_error_sleep_time",
        special={0: "not at all"},
    )

    @property
    def has_rates(self) -> bool:
        """Returns whether clients are counted."""
        limits = self.connection_rate_limit, self.message_rate_limit, self.recipient_rate_limit, self.error_rate_limit
        return any(limits)
