"""``waypost reload``: brings the configuration file into force while Waypost runs; shows before what changes and what restarts.

The supervisor reads the file again: this command checks it, compares it with the settings in use, asks for the reload and waits
for its result. For a file with faults, and for a change that needs a restart, the exit status is 2, and nothing has
changed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError, Waits
from mailcore.control.protocol.state import Ping
from mailcore.counted import counted
from mailcore.supervisor.child import SETTINGS_NAME, stored_settings
from mailcore.supervisor.fresh_addresses import sockets_are_given
from mailcore.supervisor.reloading import RELOAD, last_result
from mailcore.supervisor.settings_change import (
    OF_THE_PORTAL,
    ROLES,
    Changed,
    changed_keys,
    concerned,
    not_while_running,
)
from mailcore.terminal.command import DONE, NOT_DONE, NOT_RUNNING, WRONG_USE, add_common, config_path
from mailcore.terminal.output import complain, plain, print_json, say

__all__ = ["configure"]

WAIT_S = 120.0  # for the result: a recovery of the manager may take longer than the reload itself
MANAGER_S = 5.0  # until control has found the new manager, which it looks for each second at least
LOOK_S = 0.05
NAMES = {"receiver": "receivers", "deliverer": "deliverers"}
VALUE_MAX = 200  # characters of a value that are shown


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = (
        "Clients that connect meanwhile wait a moment and are not refused; a client between two messages gets 421 and comes"
        " back. Changes of home, of the directories and of [export] enabled need a restart of the service, as do, under"
        " systemd, changes of the addresses that receivers listen on. The portal's own"
        " processes read [portal] and [oidc] when they start."
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would change and restart")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments)
    new = load(path)
    pid = _supervisor(new)
    if pid is None:
        complain("Waypost is not running; it reads the file when it starts")
        return NOT_RUNNING
    try:
        old = stored_settings(new.run_directory / SETTINGS_NAME)
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}; run this as root or as the user of Waypost")
        return NOT_DONE
    changes = changed_keys(old, new)
    restarts = [NAMES.get(role, role) for role in ROLES if role in concerned(old, new)]
    refused = not_while_running(old, new, sockets_are_given=sockets_are_given(new.run_directory))
    if not arguments.json:
        _show(changes, restarts)
    ours = sorted({f"[{each.field}]" for each in changes if each.field in OF_THE_PORTAL})
    if ours:
        complain(f"{', '.join(ours)}: the portal's processes read this when they start; restart them, too")
    if refused:
        for each in refused:
            complain(f"{each}; restart the service")
        return WRONG_USE
    document: dict[str, Any] = {"changed": [_as_json(each) for each in changes], "restarts": restarts}
    status = DONE
    if not arguments.dry_run and (changes or restarts):
        result = _reloaded(pid, new.run_directory)
        is_in_force = bool(result) and not (result["refused"] or result["not_begun"])
        if is_in_force and {"manager", "control"} & set(result["restarted"]):
            _wait_for_the_manager(new.run_directory)
        status = _told(result, silent=arguments.json)
        document["result"] = result
    if arguments.json:
        print_json(document)
    return status


def _supervisor(settings: Settings) -> int | None:
    """Returns the process id of the supervisor that runs on this home; None if there is none."""
    try:
        with (settings.home / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read().strip()
                return int(text) if text.isdigit() else None
    except FileNotFoundError:
        pass
    return None


def _show(changes: Sequence[Changed], restarts: Sequence[str]) -> None:
    if not changes:
        say("nothing differs from the settings in use" + (", but where they come from" if restarts else ""))
        return
    for each in changes:
        say(f"{plain(each.key)}: {_shown(each.before)} -> {_shown(each.after)}")
    say(f"restarts: {', '.join(restarts) or 'nothing'}")


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = plain(text) or "empty"
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"


def _as_json(change: Changed) -> dict[str, Any]:
    def plain_value(value: Any) -> Any:
        return json.loads(json.dumps(value, default=str))

    return {"key": change.key, "before": plain_value(change.before), "after": plain_value(change.after)}


def _reloaded(pid: int, run_directory: Path) -> dict[str, Any]:
    """Asks for the reload and returns its result; {} if there is none in time. Raises OSError."""
    before = last_result(run_directory).get("number", 0)
    os.kill(pid, RELOAD)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        result = last_result(run_directory)
        if result.get("number", 0) > before and result.get("ended_at") is not None:
            return result
        time.sleep(LOOK_S)
    return {}


def _wait_for_the_manager(run_directory: Path) -> None:
    """Returns when the control process has found the manager, or after MANAGER_S.

    Otherwise the next command might hear that the manager is not running.
    """
    until = time.monotonic() + MANAGER_S
    while time.monotonic() < until:
        try:
            with ControlClient(run_directory / "control.sock", timeout_s=MANAGER_S, here=True) as control:
                if control.ask("ping", Ping).manager:
                    return
        except Waits:  # the shard is at another node
            return
        except ControlError:
            pass
        time.sleep(LOOK_S)


def _told(result: dict[str, Any], *, silent: bool) -> int:
    """Says what came of the reload; returns the exit status."""
    if not result:
        complain(f"there is no result after {WAIT_S:.0f} s; `waypost status` shows which processes run")
        return NOT_DONE
    if result["refused"]:
        for each in result["refused"]:
            complain(f"not reloaded: {each}")
        return WRONG_USE
    if result["not_begun"]:
        complain(f"not working yet: {', '.join(result['not_begun'])}; `waypost tail` shows why")
        return NOT_DONE
    if not silent:
        say(f"reloaded in {result['ended_at'] - result['began_at']:.1f} s")
    if killed := result["killed"]:
        complain(
            f"{counted(len(killed), 'process')} had to be killed, as what it had begun took too long: {', '.join(killed)}"
        )
    return DONE
