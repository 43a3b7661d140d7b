"""The certificates that listeners of this host send to clients."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from collections.abc import Iterable
from typing import Any, cast

from mailcore.config.listeners import Listener
from mailcore.config.values import listen_address
from mailcore.doctor.host import Host
from mailcore.tls.dane import chain_of

__all__ = ["CONNECT_S", "any_certificate", "served"]

SERVICE_READY = 220  # RFC 3207 4
CONNECT_S = 4.0


def served(host: Host, name: str | None, rules: Iterable[Listener]) -> list[bytes]:
    """Returns the certificates in DER, its own first, that the first listener with TLS sends; [] if it sends none.

    ``name`` is what the client asks for (SNI); ``rules`` are the listeners that are tried.
    """
    for rule in rules:
        if rule.tls == "none":
            continue
        address, port = listen_address(rule.address)
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - looked up, not bound
        with contextlib.suppress(OSError, ValueError, smtplib.SMTPException):
            if rule.tls == "implicit":
                with socket.create_connection((address, port), CONNECT_S) as plain:
                    return _sent(plain, name)
            with smtplib.SMTP(address, port, timeout=CONNECT_S) as client:
                client.ehlo()
                if client.docmd("STARTTLS")[0] == SERVICE_READY and client.sock is not None:
                    return _sent(client.sock, name)
        return []
    return []


def _sent(plain: socket.socket, name: str | None) -> list[bytes]:
    with any_certificate().wrap_socket(plain, server_hostname=name) as secured:
        return chain_of(cast(Any, secured))


def any_certificate() -> ssl.SSLContext:
    """Returns a context that accepts any signer: the certificate is inspected, not trusted."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
