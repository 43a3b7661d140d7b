"""Asks Patroni's REST API whether the cluster stays strict, which SQL cannot say while a standby is there.

Without ``synchronous_mode_strict`` Patroni empties ``synchronous_standby_names`` when the last standby goes: commits that wait
return as if they were kept by two servers.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.parse

import msgspec

from mailcore.faults import Code, Fault

__all__ = ["PatroniUnread", "judge_config", "read_config"]

ANSWER_BYTES_MAX = 1 << 20


class PatroniUnread(Exception):
    """Raised if Patroni's configuration could not be read; the message says where and why."""


class _Config(msgspec.Struct):
    """The part of Patroni's dynamic configuration that concerns us."""

    synchronous_mode: bool | str = False  # "quorum" since Patroni 4
    synchronous_mode_strict: bool = False


def read_config(addresses: tuple[str, ...], timeout_s: float, tls_root: str = "") -> bytes:
    """Returns the answer of the first member that gives its configuration (``GET /config``). Raises PatroniUnread.

    ``tls_root``: PEM file of the authority that signed the members' certificates; "": those that the host trusts.
    """
    reasons = []
    for address in addresses:
        url = urllib.parse.urlsplit(address)
        if url.scheme not in ("http", "https") or not url.hostname:
            reasons.append(f"{address}: not an address of HTTP")
            continue
        port = url.port or 8008
        connection = http.client.HTTPConnection(url.hostname, port, timeout=timeout_s)
        try:
            if url.scheme == "https":
                context = ssl.create_default_context(cafile=tls_root or None)
                connection = http.client.HTTPSConnection(url.hostname, port, timeout=timeout_s, context=context)
            connection.request("GET", f"{url.path.rstrip('/')}/config")
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
            if answer.status == http.HTTPStatus.OK:
                return data
            reasons.append(f"{address}: status {answer.status}")
        except (OSError, http.client.HTTPException) as error:
            reasons.append(f"{address}: {error}")
        finally:
            connection.close()
    raise PatroniUnread("; ".join(reasons))


def judge_config(data: bytes) -> Fault | None:
    """Returns why the configuration does not keep mail on two servers; None if it does. Raises PatroniUnread."""
    try:
        config = msgspec.json.decode(data, type=_Config)
    except msgspec.MsgspecError as error:
        raise PatroniUnread(f"its configuration cannot be understood: {error}") from error
    for name in ("synchronous_mode", "synchronous_mode_strict"):
        if not getattr(config, name):
            words = (
                f"Patroni has {name} off: when the last standby goes, mail would be acknowledged with one copy."
                f" Set it: patronictl edit-config --set {name}=true"
            )
            return Fault(Code.INVALID, words, name)
    return None
