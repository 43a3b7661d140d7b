"""The name servers that the watch asks: those of the deliverers."""

from __future__ import annotations

import dns.nameserver
import dns.resolver

from appliance.common.current_settings import current_settings
from mailcore.config.values import nameserver_address

__all__ = ["own_resolver"]


def own_resolver() -> dns.resolver.Resolver:
    """Returns a resolver for [deliverer] nameservers, otherwise for those of /etc/resolv.conf. Raises DNSException."""
    servers = current_settings().deliverer.nameservers
    resolver = dns.resolver.Resolver(configure=not servers)
    if servers:
        resolver.nameservers = [dns.nameserver.Do53Nameserver(*nameserver_address(each)) for each in servers]
    return resolver
