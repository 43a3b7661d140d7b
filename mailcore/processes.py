"""The processes of the core: the role that the supervisor starts, and the room whose ``main`` runs it.

The supervisor loads the room and forks. A test that needs one process without a supervisor starts it as a fresh Python:

    python -m mailcore.processes ROLE NUMBER PARENT SETTINGS

Here a process is also given what it needs of rooms it does not know itself: the control process gets the archive of events,
the pickup, the page of the metrics and the reports about TLS to run beside its server; the exporter gets the tracer.

Laws
- Each role imports its room inside its own function, so that receivers are started before the other rooms are loaded.
- No room knows this file: the supervisor is handed ``ROLES`` (``waypost mailcore``).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from mailcore.authenticity.sender_check import Ask, Failed, SenderCheck
from mailcore.config.arc import Arc
from mailcore.config.authenticity import Authenticity
from mailcore.config.settings import Settings
from mailcore.supervisor.child import Main, run_child
from mailcore.supervisor.start import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mailcore.config.live_maps import LiveMaps, MapLog
    from mailcore.config.settings_files import SettingsFiles
    from mailcore.config.shared_settings import Shared
    from mailcore.control.local_filter import LocalFilter
    from mailcore.control.local_stores import LocalStores
    from mailcore.deliverer.mta_sts import StsPolicies
    from mailcore.deliverer.sealing import Sealing
    from mailcore.deliverer.tls_counting import TlsCounting
    from mailcore.events.exporter import OfNodes, OpenDisk
    from mailcore.manager.leasing import HeldShard
    from mailcore.pickup.verification import Verifier
    from mailcore.receiver.stored import ReceiverStores
    from mailcore.routing.resolve import Routing
    from mailcore.supervisor.users import Users

__all__ = ["ROLES", "checks_of", "main", "run_shards", "shared_settings"]


def _receiver() -> Main:
    from mailcore.receiver import receiver

    return partial(receiver.main, _open_rewriting, _sender_check, checks_of, _receiver_stores)


def _receiver_stores(settings: Settings, number: int) -> ReceiverStores | None:
    if not settings.nodes.is_on:  # else a receiver does not load it
        return None
    from mailcore.nodes.writing import open_receiver
    from mailcore.receiver.stored import ReceiverStores

    found, wait_s = open_receiver(settings, number), settings.nodes.commit_wait_s
    return ReceiverStores(found.lane, found.uploads, wait_s, found.end_at, found.reserved, found.number)


def _open_rewriting(settings: Settings, log: MapLog, threads: ThreadPoolExecutor) -> LiveMaps | None:
    if not settings.rewriting.is_on:  # else the process does not load it
        return None
    from mailcore.config.live_maps import LiveMaps

    hostname = settings.receiver.hostname or socket.gethostname()
    return LiveMaps(settings.rewriting, log, threads, settings.lenient.own_domain(hostname), hostname)


def _sender_check(settings: Authenticity, hostname: str, ask: Ask, failed: Failed) -> SenderCheck:
    from mailcore.authenticity.policy import open_policy  # a receiver loads it only if the check is on

    return open_policy(settings, hostname, ask, failed)


def checks_of(settings: Settings, *parts: Any) -> Any:
    """Returns the checks of recipients (``MakeChecks``); None if the settings have none."""
    if not (settings.recipients.is_on or settings.dnsbl.sites or settings.greylist.enabled):  # else they are not loaded
        return None
    from mailcore.receiver.recipient_checks import RecipientChecks

    return RecipientChecks(settings, *parts)


def _manager() -> Main:
    from mailcore.manager import manager

    return partial(manager.main, _held_shard, shared_settings)


def _held_shard(settings: Settings) -> HeldShard | None:
    if not settings.nodes.is_on:  # else the manager does not load it
        return None
    from mailcore.nodes.writing import open_manager

    return open_manager(settings)


def _deliverer() -> Main:
    from mailcore.deliverer import deliverer

    return partial(deliverer.main, _open_sealing, _open_counting)


def _open_counting(settings: Settings, sts: StsPolicies | None, complain: Callable[[str], None]) -> TlsCounting | None:
    if not settings.tlsrpt.is_on:  # else a deliverer does not load it
        return None
    from mailcore.deliverer.tls_counting import open_counting

    return open_counting(settings, sts, complain)


def _open_sealing(
    settings: Arc,
    authserv_id: str,
    complain: Callable[[str, str], None],
    clock: Callable[[], float],
    wall: Callable[[], float],
) -> Sealing:
    from mailcore.deliverer.sealing import open_sealing  # a deliverer loads it only if it is on

    return open_sealing(settings, authserv_id, complain, clock, wall)


def _control() -> Main:
    from mailcore.control import server
    from mailcore.events.feed.feed import open_feed
    from mailcore.events.read.archive import open_archive
    from mailcore.pickup import pickup

    opened: list[LocalStores | None] = []

    def open_stores(settings: Settings) -> LocalStores | None:  # one process writes for both
        if not opened:
            opened.append(_local_stores(settings))
        return opened[0]

    works = (partial(pickup.run, _open_filter, _open_verifier, open_stores), _metrics, _tls_reports)
    beside = tuple(partial(_once_on_a_node, work) for work in works)
    return partial(
        server.main, open_archive, open_feed, _open_rewriting, beside, open_filter=_open_filter, files=_settings_files(),
        open_stores=open_stores, open_shared=shared_settings,
    )  # fmt: skip


def _settings_files() -> SettingsFiles:
    from mailcore.config.load import load, load_managed, managed_path
    from mailcore.config.settings_files import SettingsFiles

    return SettingsFiles(partial(load, look_at_certificate=False), load_managed, managed_path)


def shared_settings(settings: Settings) -> Shared | None:
    """Returns what all nodes have once (``OpenShared``); None without a database."""
    if not settings.nodes.is_on:  # else it is not loaded
        return None
    from mailcore.nodes.settings_store import SettingsStore

    return SettingsStore(settings)


def _local_stores(settings: Settings) -> LocalStores | None:
    if not settings.nodes.is_on:  # else the control process does not load it
        return None
    from mailcore.control.local_stores import LocalStores
    from mailcore.nodes.ordering import NodeOrders
    from mailcore.nodes.writing import open_control

    found = open_control(settings)
    return LocalStores(found.store, found.pickup, found.end_at, found.reserved, found.number, NodeOrders(settings))


async def _once_on_a_node(work: Callable[..., Coroutine[Any, Any, None]], settings: Settings, *parts: Any) -> None:
    """Runs what a node has once, beside the control process of its first shard."""
    if not settings.shard:
        await work(settings, *parts)


def _open_filter(settings: Settings) -> LocalFilter | None:
    if not settings.receiver.non_smtpd_milters:  # else the control process does not load it
        return None
    from mailcore.pickup.filtering import Filtering

    return Filtering(settings)


def _open_verifier(settings: Settings, loop: asyncio.AbstractEventLoop, routing: Callable[[], Routing]) -> Verifier:
    from mailcore.pickup.verifier import AddressVerifier  # the control process loads it with the first request

    return AddressVerifier(settings, loop, routing)


async def _metrics(settings: Settings, *_: object) -> None:
    if settings.metrics.listen:  # else the control process does not load it
        from mailcore.metrics import server

        await server.run(settings)


async def _tls_reports(settings: Settings, *_: object) -> None:
    if settings.tlsrpt.is_on:  # else the control process does not load it
        from mailcore.tlsrpt import sending

        await sending.run(settings)


def _exporter() -> Main:
    from mailcore.events import exporter

    return partial(exporter.main, _start_traces, _events_disk, _of_nodes)


def _of_nodes(settings: Settings) -> OfNodes | None:
    if not settings.nodes.is_on:  # else the exporter does not load it
        return None
    from mailcore.nodes.for_reports import answer

    return partial(answer, settings)


def _events_disk(settings: Settings) -> OpenDisk | None:
    if not settings.nodes.is_on:  # else the exporter does not load it
        return None
    from mailcore.events.write.stored_disk import StoredDisk
    from mailcore.nodes.stored_events import open_events

    open_store = open_events(settings)
    return lambda beats: StoredDisk(beats, str(settings.events_directory), open_store)


def _start_traces(settings: Settings) -> None:
    if settings.traces.endpoint:  # else the exporter does not load it
        from mailcore.traces import tracer

        tracer.start(settings)


def _owner() -> Main:
    def run(settings: Settings, number: int) -> None:
        from mailcore.nodes import owner  # in the child: the supervisor does not load what speaks to a database

        owner.main(settings, number)

    return run


def _spare() -> Main:
    def run(settings: Settings, parent: int) -> None:
        from mailcore.control.change_faults import faults_here
        from mailcore.control.kept_store import KeptStore
        from mailcore.nodes import spare  # in the child, as above
        from mailcore.nodes.taking import take_forever

        def take(settings: Settings, parent: int) -> None:
            take_forever(settings, _settings_files(), KeptStore(settings.home), faults_here, parent)

        spare.main(take, settings, parent)

    return run


def _peers() -> Main:
    def run(settings: Settings, parent: int) -> None:
        from mailcore.peers import peers  # in the child, as above

        peers.main(settings, parent)

    return run


# role, as ``Child.role`` of the supervisor -> how its children are started
ROLES: dict[str, Role] = {
    "receiver": Role(_receiver),
    "manager": Role(_manager),
    "deliverer": Role(_deliverer),
    "control": Role(_control),
    "exporter": Role(_exporter),
    "owner": Role(_owner),
    "spare": Role(_spare),
    "peers": Role(_peers),
}


def run_shards(settings: Settings, users: Users, read: Callable[[], Settings]) -> int:
    """Runs the process above the supervisors of several shards until it is killed; returns an exit status if it can't start."""
    from mailcore.supervisor import node  # a queue that is alone does not load it

    return node.main(settings, ROLES, _is_drained, users, read)


def _is_drained(settings: Settings) -> bool:
    from mailcore.control.drained import is_drained  # the process that asks loads it

    return is_drained(settings)


def main() -> int:
    """Runs the role that the command line names, with the settings that the supervisor stored; returns the exit status."""
    role, number, parent, settings = sys.argv[1:]
    return run_child(ROLES[role].load, int(number), int(parent), settings)


if __name__ == "__main__":
    sys.exit(main())
