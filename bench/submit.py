"""One message to a server that may not be up yet: tries until it has its 250."""

from __future__ import annotations

import smtplib
import time

__all__ = ["submit"]

PAUSE_S = 0.005
MESSAGE = b"Subject: first\r\n\r\nis anybody there\r\n"


def submit(port: int, timeout_s: float) -> float:
    """Wall-clock time of the 250 to the final dot. Raises TimeoutError when none comes."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=10) as smtp:
                smtp.sendmail("first@sender.example", ["sink@example.org"], MESSAGE)
                return time.time()
        except (OSError, smtplib.SMTPException):
            time.sleep(PAUSE_S)
    raise TimeoutError(f"no 250 on port {port} within {timeout_s:g} s")
