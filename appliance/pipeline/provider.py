"""Returns the owner of a host that received mail: the registrable domain of its name."""

from __future__ import annotations

__all__ = ["provider_of"]

# Where a country sells names below a second level of its own: mx.example.co.uk belongs to example.co.uk. Of the Public
# Suffix List only what such second levels are called; a provider below a rarer one is shown under it.
SECOND_LEVELS = ("ac", "co", "com", "edu", "gob", "go", "gov", "gv", "mil", "ne", "net", "nom", "or", "org", "sch")
_ADDRESS = frozenset("0123456789.")


def provider_of(relay: str | None) -> str:
    """Returns the provider of a relay: "example.net" for "mx1.mail.example.net[192.0.2.1]:25"; "[192.0.2.1]" for a host
    without a name; "" if there was no host."""
    if relay is None or relay in ("", "none"):
        return ""
    host = relay.partition("[")[0].rstrip(".").lower()
    if ":" in host or _ADDRESS.issuperset(host):  # also of an address literal, before its [
        return f"[{relay.rpartition('[')[2].partition(']')[0].lower()}]"
    labels = host.split(".")
    below = len(labels) > 1 and labels[-2] in SECOND_LEVELS and len(labels[-1]) == 2
    return ".".join(labels[-3 if below else -2 :])
