"""The results of a message in one line, as ``Envelope.authentication`` and the log have them."""

from __future__ import annotations

__all__ = ["chain_state", "summary_of"]


def summary_of(spf: str, dkim: str, arc: str, dmarc: str) -> str:
    """Returns the line for these results."""
    return f"spf={spf} dkim={dkim} arc={arc} dmarc={dmarc}"


def chain_state(summary: str) -> str:
    """Returns the state of the ARC chain in such a line; "" without a line."""
    return next((word[4:] for word in summary.split() if word.startswith("arc=")), "")
