"""Next hops that could not be reached after a change: those whose TLS policy changes, and those that mail moves to, are tried.

A try is a connection as mail would have it, up to TLS, and no message. One that fails is tried as the settings of now demand,
too, so that a host that is down is not taken for an effect of the change.

Keeps law: effects-tell-and-change-nothing (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from mailcore.config.host_finder_of import host_finder_of, our_name
from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.control.protocol.effects import HopEffects, UnreachableHop
from mailcore.deliverer.client import Client
from mailcore.deliverer.mta_sts import StsPolicies
from mailcore.deliverer.sts_fetch import PolicyFetcher
from mailcore.frames import NextHop
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.tls.policy import Policies

__all__ = ["AT_ONCE", "NOT_TRIED_SHOWN", "Hop", "concerned_hops", "try_hops"]

AT_ONCE = 8  # connections
ONE_TRY_S = 10.0
NOT_TRIED_SHOWN = 100

Hop = tuple[str, NextHop]  # transport and next hop


def concerned_hops(old: Settings, new: Settings, hops: Collection[Hop], moved_to: Collection[Hop]) -> list[Hop]:
    """Returns the next hops whose policy becomes another, and those that mail moves to, in the order of ``hops``."""
    before, after = _policies(old), _policies(new)
    concerned = []
    for hop in dict.fromkeys([*hops, *moved_to]):
        transport, next_hop = hop
        of_old, of_new = old.transports.get(transport), new.transports.get(transport)
        if of_new is None:  # its mail waits: the queue's part says so
            continue
        if (
            hop in moved_to
            or of_old is None
            or before.of(transport, of_old.tls, next_hop) != after.of(transport, of_new.tls, next_hop)
        ):
            concerned.append(hop)
    return concerned


def _policies(settings: Settings) -> Policies:
    return Policies(settings.tls_policy, settings.deliverer.port, settings.tls.ca_file)


async def try_hops(
    old: Settings,
    new: Settings,
    hops: list[Hop],
    queued: Mapping[Hop, int],
    week: Mapping[Hop, int],
    most: int,
    seconds: float,
) -> HopEffects:
    """Tries the first ``most`` of the next hops, those with the most mail first, for as many seconds."""
    order = sorted(hops, key=lambda hop: (-queued.get(hop, 0) - week.get(hop, 0), hop[0], hop[1].host))
    until = time.monotonic() + seconds
    slots = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory() as directory:
        clients = _client(old, Path(directory) / "old"), _client(new, Path(directory) / "new")

        async def one(hop: Hop) -> tuple[str, str, str] | None:
            async with slots:
                if time.monotonic() >= until:
                    return None
                policy, why = await _reach(clients[1], new, hop, until)
                now = (await _reach(clients[0], old, hop, until))[1] if why and hop[0] in old.transports else ""
                return policy, why, now

        found = await asyncio.gather(*map(one, order[:most]))
        for client in clients:
            client.close()
    unreachable = [
        UnreachableHop(
            destination=destination_of(hop),
            policy=result[0],
            reason=result[1],
            now=result[2],
            queued=queued.get(hop, 0),
            week=week.get(hop, 0),
        )
        for hop, result in zip(order, found, strict=False)
        if result is not None and result[1]
    ]
    untried = [destination_of(hop) for hop, result in zip(order, found, strict=False) if result is None]
    return HopEffects(
        concerned=len(order),
        tried=sum(result is not None for result in found),
        unreachable=unreachable,
        not_tried=[*untried, *map(destination_of, order[most:])][:NOT_TRIED_SHOWN],
    )


async def _reach(client: Client, settings: Settings, hop: Hop, until: float) -> tuple[str, str]:
    transport, next_hop = hop
    try:
        async with asyncio.timeout(max(min(ONE_TRY_S, until - time.monotonic()), 0.1)):
            policy, why = await client.reach(transport, settings.transports[transport].tls, next_hop)
    except TimeoutError:
        return "", f"no answer within {ONE_TRY_S:g} s"
    return str(policy), why


def destination_of(hop: Hop) -> str:
    """Returns transport and next hop in words."""
    transport, next_hop = hop
    if next_hop.mx or not next_hop.port:
        return f"{transport}:{next_hop.host}"
    return f"{transport}:[{next_hop.host}]:{next_hop.port}"


def _client(settings: Settings, sts_directory: Path) -> Client:
    """Returns a client as deliverers have it, without logins, and with MTA-STS policies of its own."""
    loop = asyncio.get_running_loop()
    own_addresses = OwnAddresses(listen_address(each.address) for each in settings.all_listeners)
    finder = host_finder_of(settings, loop.time, own_addresses)
    sts = None
    if settings.sts_directory is not None:
        sts_directory.mkdir()
        fetcher = PolicyFetcher(finder, settings.tls.ca_file, settings.tls.sts_timeout_s)
        sts = StsPolicies(
            sts_directory, finder, fetcher, settings.tls.sts_policies_max, time.time, loop.time, _not_kept
        )
    return Client(
        settings.deliverer,
        finder,
        our_name(settings),
        loop,
        policies=_policies(settings),
        sts=sts,
        lmtp=settings.lmtp_transports,
    )


def _not_kept(why: str) -> None:
    """Ignores that a policy could not be kept: it is for this look alone."""
