"""Says why TLS with a client failed, for the log. Pure."""

from __future__ import annotations

import ssl

__all__ = ["why_failed"]

# Alerts of a client (RFC 8446 6.2 and before) as OpenSSL codes them.
_OF_CERTIFICATES = {
    f"{version}_ALERT_{alert}": " ".join(alert.lower().split("_"))
    for version in ("SSLV3", "TLSV1", "TLSV13")
    for alert in (
        "BAD_CERTIFICATE",
        "UNSUPPORTED_CERTIFICATE",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "ACCESS_DENIED",
    )
}


def why_failed(error: BaseException) -> str:
    """Returns the reason in words. ``error``: of the handshake, or of the encrypted connection."""
    if isinstance(error, ssl.SSLError):
        code = error.reason or "SSL error"
        alert = _OF_CERTIFICATES.get(code)
        return (
            " ".join(code.lower().split("_"))
            if alert is None
            else f"the client does not accept our certificate: {alert}"
        )
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "the handshake took too long"
    return "the client closed the connection during the handshake; it may not accept our certificate"
