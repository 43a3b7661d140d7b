"""The page /metrics: for the networks of [portal] metrics_networks, without signing in."""

from __future__ import annotations

import ipaddress
from functools import cache

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from appliance.metrics.collecting import text

__all__ = ["metrics"]


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Returns the metrics as Prometheus text; 404 for clients of other networks, which learn nothing."""
    if not may_read(str(request.META.get("REMOTE_ADDR", "")), settings.PORTAL.metrics_networks):
        raise Http404
    return HttpResponse(text(), content_type=CONTENT_TYPE_LATEST)


def may_read(address: str, networks: tuple[str, ...]) -> bool:
    """Returns whether a client address is in one of the networks."""
    try:
        client = ipaddress.ip_address(address)
    except ValueError:  # of a socket without an address
        return False
    if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped is not None:
        client = client.ipv4_mapped
    return any(client in network for network in _read(networks))


@cache
def _read(networks: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, networks))
