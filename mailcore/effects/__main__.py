"""The process that looks at what a change would do: reads a question from standard input, writes the answer as JSON.

    python -m mailcore.effects PARENT <question >answer

It changes nothing, has a lower CPU priority than mail, and ends when its parent ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from mailcore.config.document import ConfigError
from mailcore.config.load import load_managed
from mailcore.config.settings import Settings
from mailcore.config.shards import of_shard
from mailcore.control.effects import Question
from mailcore.control.protocol.effects import ClientEffects, SettingsEffects
from mailcore.effects.arrivals import Arrivals
from mailcore.effects.budget import Deadline
from mailcore.effects.clients import ClientsCompared, concerns_clients
from mailcore.effects.hops import Hop, concerned_hops, try_hops
from mailcore.effects.queued import HOPS_MAX, Hops, look_at_queue
from mailcore.effects.routes_compared import RoutesCompared
from mailcore.effects.signatures import look_at_signatures
from mailcore.log.disk import Disk
from mailcore.lookup.browse import Stretch
from mailcore.rewriting.map_text import MapFault
from mailcore.routing.resolve import Resolved
from mailcore.supervisor.child import SETTINGS_NAME, stored_settings
from mailcore.supervisor.settings_change import changed_keys

__all__ = ["effects", "main"]

NICE = 10  # mail comes first
WEEK_S = 7 * 86_400
_PR_SET_PDEATHSIG = 1  # prctl(2)
# Shares of the time for the queue, for the arrivals of the week, and for next hops.
_QUEUE, _WEEK, _HOPS = 0.4, 0.3, 0.3
# Sections of the file that change where mail goes, and those that change neither that nor which mail is taken.
_OF_ROUTES = ("routes", "sender_routes", "login_routes", "route_maps")
_WITHOUT_EFFECT = (
    "alerts", "auth", "bounce", "control", "export", "maildrop", "metrics", "portal", "queue", "reports", "scheduler", "source",
    "supervisor", "tlsrpt", "traces", "written",
)  # fmt: skip


def main() -> int:
    """Returns the exit status."""
    os.nice(NICE)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):  # it ended before we could say so
        return 1
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(effects(question)) + b"\n")
    return 0


def effects(question: Question) -> SettingsEffects:
    """Returns what the change would do."""
    began = time.monotonic()
    answer = SettingsEffects(queued=None, clients=None, hops=None, not_judged=[], took_s=0.0)
    try:
        old = stored_settings(Path(question.run_directory) / SETTINGS_NAME)
        new, _ = load_managed(Path(question.source), question.managed_text)
        if old.shard is not None:
            new = of_shard(new, old.shard)
        _look(question, old, new, answer)
    except (OSError, MapFault, ConfigError) as error:
        answer.error = str(error)
    answer.took_s = time.monotonic() - began
    return answer


def _look(question: Question, old: Settings, new: Settings, answer: SettingsEffects) -> None:
    changed = changed_keys(old, new)
    judges_clients = any(concerns_clients(each.field, each.key) for each in changed)
    answer.not_judged = [
        each.key
        for each in changed
        if not (
            concerns_clients(each.field, each.key)
            or each.field in _WITHOUT_EFFECT
            or each.field in _OF_ROUTES
            or each.field in ("tls_policy", "dkim")
            or (each.field == "transports" and each.key.endswith("] tls"))
        )
    ]
    routes = RoutesCompared(old, new)
    changes_policies = old.tls_policy != new.tls_policy or old.tls != new.tls or _levels(old) != _levels(new)
    if old.dkim != new.dkim:
        answer.signatures = look_at_signatures(
            Disk(), old, new, _stretches(question), Deadline(_QUEUE * question.seconds)
        )
    if not (judges_clients or routes.differ or changes_policies):
        return
    queued: Hops = {}
    moved_to: set[Hop] = set()
    if routes.differ or changes_policies:
        deadline = Deadline(_QUEUE * question.seconds)
        found, queued, moved_to = look_at_queue(
            Disk(), str(old.queue_directory), _stretches(question), routes, deadline
        )
        answer.queued = found if routes.differ else None
    week: Hops = {}
    _look_at_week(question, old, new, routes, judges_clients, answer, week)
    if routes.differ or changes_policies:
        concerned = concerned_hops(old, new, [*queued, *week], moved_to)
        if concerned:
            answer.hops = asyncio.run(
                try_hops(old, new, concerned, queued, week, question.hops, _HOPS * question.seconds)
            )


def _stretches(question: Question) -> dict[str, Stretch]:
    return {
        lane: Stretch(each.start, each.runner, each.end, question.replaced) for lane, each in question.stretches.items()
    }


def _levels(settings: Settings) -> dict[str, str]:
    return {name: each.tls for name, each in settings.transports.items()}


def _look_at_week(
    question: Question,
    old: Settings,
    new: Settings,
    routes: RoutesCompared,
    judges_clients: bool,
    answer: SettingsEffects,
    week: Hops,
) -> None:
    """Fills in the clients, and the recipients of the week by next hop."""
    arrivals = Arrivals(
        Disk(), str(old.queue_directory), str(old.events_directory), _stretches(question), question.now - WEEK_S
    )
    deadline = Deadline(_WEEK * question.seconds)
    compared = ClientsCompared(old, new)
    for arrival in arrivals.read(question.now, deadline):
        if judges_clients:
            compared.judge(arrival)
        _, to = routes.of_message(arrival.sender, arrival.login)
        for recipient in arrival.recipients:
            found = to(recipient, "")
            if isinstance(found, Resolved):
                hop = found.transport, found.next_hop
                if hop in week or len(week) < HOPS_MAX:
                    week[hop] = week.get(hop, 0) + 1
    if judges_clients:
        clients, more = compared.clients()
        answer.clients = ClientEffects(
            since=arrivals.back_to,
            examined=compared.examined,
            complete=arrivals.reaches_back and not arrivals.damaged,
            unexplained=compared.unexplained,
            clients=clients,
            more=more,
        )


if __name__ == "__main__":
    sys.exit(main())
