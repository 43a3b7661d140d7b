"""Whether an encrypted connection is what its policy demands, and which name the server is asked for. No connection of its own.

Keeps law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from mailcore.routing.tlsa import Tlsa
from mailcore.tls.certificates import CHECKED_BY_NAME, mismatch
from mailcore.tls.dane import chain_of, matched
from mailcore.tls.policy import Policy

__all__ = ["Checked", "checked"]


class Checked(NamedTuple):
    """``missing``: what the policy demands and the connection lacks, "" if nothing. ``verified``: the certificate was checked
    and is right. ``record``: the TLSA record that it matches."""

    missing: str = ""
    verified: bool = False
    record: Tlsa | None = None


def checked(session: ssl.SSLObject | None, policy: Policy) -> Checked:
    """Compares the certificates of a session with what the policy demands. None: the connection is in the clear."""
    if session is None:
        return Checked("the connection is not encrypted")
    if policy.tlsa:
        record = matched(chain_of(session), policy)
        if record is None:
            return Checked(f"no TLSA record of {policy.names[0]} matches its certificates")
        return Checked(verified=True, record=record)
    if policy.level in CHECKED_BY_NAME:
        wrong = mismatch(session.getpeercert(), policy.names)
        return Checked(wrong, verified=not wrong)
    return Checked()
