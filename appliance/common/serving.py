"""Runs uvicorn: on a port of its own or on a socket that systemd passes, with HTTP or, with the portal's certificate, HTTPS."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

import uvicorn
from django.conf import settings
from uvicorn.supervisors import Multiprocess

__all__ = ["certificate_fault", "passed_socket", "serve"]

APPLICATION = "appliance.asgi:application"
GRACE_S = 2  # for pages that are being rendered
FIRST = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
# For TLS 1.2, which Debian's OpenSSL has as its oldest: forward secrecy and no CBC. TLS 1.3 has its own.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def passed_socket() -> socket.socket | None:
    """Returns the socket on which systemd listens for the portal, or None. A child process does not get it."""
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if not mine or count != "1":
        return None
    listener = socket.socket(fileno=FIRST)
    listener.set_inheritable(False)
    return listener


def certificate_fault() -> str:
    """Returns why the portal's certificate cannot be used; "" if it can, or if there is none."""
    if not settings.PORTAL.tls_certificate:
        return ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.PORTAL.tls_certificate, settings.PORTAL.tls_key
        )
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", "") or error.strerror or str(error)
        return f"[portal] tls_certificate or tls_key cannot be used: {reason} ({settings.PORTAL.tls_certificate})"
    return ""


def serve(listener: socket.socket | None) -> None:
    """Serves until SIGTERM, on ``listener`` or on the port of the settings."""
    tls: dict[str, Any] = {}
    if settings.PORTAL.tls_certificate:
        tls = {
            "ssl_certfile": settings.PORTAL.tls_certificate,
            "ssl_keyfile": settings.PORTAL.tls_key,
            "ssl_ciphers": CIPHERS,
        }
    given: dict[str, Any] = {
        "host": settings.LISTEN_HOST.strip("[]"),
        "port": settings.LISTEN_PORT,
        "workers": settings.PORTAL.processes if settings.PORTAL.processes > 1 else None,
        "timeout_graceful_shutdown": GRACE_S,
        "lifespan": "on",
        "log_level": "warning",
        "access_log": False,
        "loop": "uvloop",
        "http": "httptools",
        "ws": "none",
        "server_header": False,
        # Without a proxy, a program on this host could claim any client address and avoid the lockout.
        "proxy_headers": settings.BEHIND_PROXY,
        "forwarded_allow_ips": "127.0.0.1",
        **tls,
    }
    if listener is None:
        uvicorn.run(APPLICATION, **given)
        return
    config = uvicorn.Config(APPLICATION, **given)
    if settings.PORTAL.processes > 1:
        Multiprocess(config, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run(sockets=[listener])
