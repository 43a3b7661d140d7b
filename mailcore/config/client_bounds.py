"""Bounds of [receiver] against clients that hold connections and send nothing, or so slowly that no one else gets in."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, number, whole

__all__ = ["ClientBounds"]


@dataclass(frozen=True, kw_only=True)
class ClientBounds:
    """The settings of [receiver] that keep room for clients that send mail."""

    connections_max: int = whole(
        1000, 1, 60_000, "connections", "maximum concurrent connections to one process; further ones get 421"
    )
    connections_reserved: int = whole(
        50,
        0,
        60_000,
        "connections",
        "connections of connections_max that only clients in [relay] networks can have, and as many more for submission "
        "listeners; at most a quarter of connections_max each",
    )
    connections_per_client_max: int = whole(
        50,
        1,
        60_000,
        "connections",
        "maximum concurrent connections of one client's network (as [clients] ipv4_prefix_length says) to one process, as "
        "Postfix's smtpd_client_connection_count_limit",
    )
    stress_timeout_s: float = number(
        10.0,
        0.1,
        3600,
        "seconds",
        "under stress, time for a whole command and for each part of the data, as Postfix's smtpd_timeout under stress. It is "
        "stress when other clients have four fifths of the connections they can have",
    )
    data_rate_min: int = whole(
        500, 0, 1 << 30, "bytes a second", "under stress, minimum rate of the data, as Postfix's smtpd_min_data_rate"
    )
    session_time_max_s: int = whole(
        4 * 3600,
        60,
        DAY_S,
        "seconds",
        "maximum length of a session of a client outside [relay] networks that has not logged in",
    )
