"""The section [deliverer]: the SMTP client."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import number, text, texts, whole
from mailcore.config import values

__all__ = ["Deliverer"]


@dataclass(frozen=True, kw_only=True)
class Deliverer:
    """[deliverer]: the SMTP client. Timeouts are the defaults of Postfix's smtp(8)."""

    processes: int = whole(1, 1, 64, "processes", "deliverer processes")
    hostname: str = text("", "our name in EHLO", values.host_name, special={"": "[receiver] hostname"})
    concurrency: int = whole(500, 1, 10_000, "deliveries", "maximum concurrent deliveries of one process")
    connect_timeout_s: float = number(
        30, 0.1, 3600, "seconds", "timeout for the connection, as Postfix's smtp_connect_timeout"
    )
    greeting_timeout_s: float = number(
        300, 0.1, 3600, "seconds", "timeout for the greeting and EHLO, as Postfix's smtp_helo_timeout"
    )
    command_timeout_s: float = number(
        300,
        0.1,
        3600,
        "seconds",
        "timeout for the answers to MAIL and RCPT, as Postfix's smtp_mail_timeout and smtp_rcpt_timeout",
    )
    data_timeout_s: float = number(
        180,
        0.1,
        3600,
        "seconds",
        "timeout without progress while the message is sent, as Postfix's smtp_data_xfer_timeout",
    )
    final_timeout_s: float = number(
        600, 0.1, 3600, "seconds", "timeout for the answer to the whole message, as Postfix's smtp_data_done_timeout"
    )
    connection_idle_s: float = number(
        2.0,
        0.0,
        600,
        "seconds",
        "how long an unused connection is kept open, as Postfix's smtp_connection_cache_time_limit",
    )
    connections_idle_max: int = whole(
        100, 0, 10_000, "connections", "maximum unused connections one process keeps open"
    )
    connection_uses_max: int = whole(1000, 1, 1_000_000, "messages", "maximum messages over one connection")
    addresses_max: int = whole(
        5, 1, 100, "addresses", "maximum addresses tried for one delivery, as Postfix's smtp_mx_address_limit"
    )
    nameservers: tuple[str, ...] = texts(
        (),
        "name servers to ask, each an address or address:port",
        values.nameserver,
        special={"": "those of /etc/resolv.conf"},
    )
    port: int = whole(25, 1, 65_535, "", "TCP port of hosts found by MX")
