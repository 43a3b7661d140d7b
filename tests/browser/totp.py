"""Codes of an app for TOTP."""

from __future__ import annotations

import time

from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

from tests.eventually import eventually

__all__ = ["code", "fresh_code"]

PERIOD_S = 30
TO_SEND_S = 10  # a page of a busy machine takes that long to be sent


def code(secret: str) -> str:
    """Returns the code of this moment."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // PERIOD_S)))


async def fresh_code(secret: str, used: str = "") -> str:
    """Waits for a code that is not ``used`` (each signs in once) and stays valid while it is sent; returns it."""

    def fresh() -> str:
        now = code(secret)
        return now if now != used and time.time() % PERIOD_S < PERIOD_S - TO_SEND_S else ""

    return str(await eventually(fresh, "the next code"))
