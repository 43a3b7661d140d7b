"""Names what is wrong with [clients] postmaster: mail for <postmaster> is refused, or would come back to us. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.settings import Settings

__all__ = ["postmaster_faults"]


def postmaster_faults(settings: Settings, hostname: str) -> Iterator[str]:
    """Yields a sentence for a person. ``hostname`` is the name of this host, if [receiver] names none."""
    ours = (settings.receiver.hostname or hostname).lower()
    completed = settings.lenient.own_domain(ours).lower()  # what <postmaster> gets
    address = settings.clients.postmaster
    domain = address.rpartition("@")[2].lower()
    relayed = {each.lower() for each in settings.relay.domains}
    if not address and relayed and completed not in relayed:
        yield (
            "[clients] postmaster is not set, so mail for <postmaster> from other servers is refused; RFC 5321 4.5.1 asks "
            "every server to accept it"
        )
    if domain == ours and address not in settings.routes and domain not in settings.routes:
        yield f"[clients] postmaster is at {domain}, which is this host and has no route: the mail would come back"
