"""The shards of a node: each answers or not, and the checks of one queue are made for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from mailcore.config.known_shards import known_shards
from mailcore.config.shards import running_of
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.state import Ping
from mailcore.doctor.finding import AFTER_PROCESSES, Finding, bad, good
from mailcore.doctor.host import ANSWER_S, Host

__all__ = ["in_each", "look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each of several shards that run; nothing for a queue that is alone."""
    for shard in known_shards(host.settings.run_directory):
        what = f"shard {shard.number}"
        try:
            with ControlClient(shard.run_directory / "control.sock", who="doctor", timeout_s=ANSWER_S) as control:
                is_there = control.ask("ping", Ping).manager
        except ControlError as error:
            yield bad(what, str(error), AFTER_PROCESSES)
            continue
        if not is_there:
            yield bad(what, "its manager is not running; its mail waits", AFTER_PROCESSES)
        elif shard.is_open:
            yield good(what, "answers, and takes mail")
        else:
            yield good(what, "answers, and drains: it takes no mail")


def in_each(check: Callable[[Host], Iterable[Finding]]) -> Callable[[Host], Iterator[Finding]]:
    """Returns a check of the queue of each shard. A queue that is alone is checked as it is."""

    def checked(host: Host) -> Iterator[Finding]:
        yield from check(host)
        for settings in running_of(host.settings)[1:]:
            of_shard = Host.of(settings, host.config, wall=host.wall)
            for finding in check(of_shard):
                yield msgspec.structs.replace(finding, what=f"{finding.what} of shard {settings.shard}")

    return checked
