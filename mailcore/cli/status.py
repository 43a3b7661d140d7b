"""``waypost status``: processes, queue size and deliveries in progress.

Exit status 1 if the manager does not answer, or if this node waits for its shard and is not the spare of another node.
"""

from __future__ import annotations

import argparse
import os
import time

import msgspec

from mailcore.config.certificates import CertificateError, load_pair
from mailcore.config.known_nodes import CURRENT_S, read_seen
from mailcore.config.known_shards import UNKNOWN
from mailcore.config.maps import map_faults, recipient_faults
from mailcore.config.rewriting import REGEXP
from mailcore.config.route_files import FAULT_MEANS, route_faults
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import MANAGED, TUNED, USERS, status_in
from mailcore.config.waiting import waits_in
from mailcore.control.client import Refused, Waits
from mailcore.control.protocol.nodes import Nodes
from mailcore.control.protocol.state import Certificate, Certificates, Disk, Disks, Processes
from mailcore.counted import counted
from mailcore.doctor.as_user import ids_of, name_of_user, unreadable
from mailcore.faults import Fault
from mailcore.manager_answers import ShardRow, ShardState, Size, State
from mailcore.queue.lanes import incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.terminal.command import DONE, NOT_DONE, add_common, control_client, is_remote, settings_of
from mailcore.terminal.output import complain, plain, print_json, rows_to_lines, say, size_shown
from mailcore.terminal.times import shown_duration
from mailcore.users.user_file import UserFileError, read_users

__all__ = ["configure"]

LANES_SHOWN = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    remote = is_remote(arguments)
    with control_client(arguments) as control:
        try:
            processes = control.ask("processes", Processes)
        except Waits as waits:
            return _waiting(arguments, waits)
        state: State | None = None
        size: Size | None = None
        disks = control.ask("disks", Disks).disks
        certificates = control.ask("certificates", Certificates).certificates
        nodes = control.ask("nodes", Nodes)
        error: Fault | None = None
        try:
            state = control.ask("state", State)
            size = control.ask("size", Size)
        except Refused as refused:
            error = refused.fault
    problems = [] if remote else _problems(settings_of(arguments), processes)
    # Its own shard may wait while it runs one that it has adopted.
    waiting = None if remote else waits_in(settings_of(arguments).node_run_directory)
    needs_person = waiting is not None and not waiting.is_in_order
    if waiting is not None and needs_person:
        problems.insert(0, plain(waiting.sentence))
    if arguments.json:
        print_json(
            {
                "problems": None if remote else problems,
                **msgspec.structs.asdict(processes),
                "state": state,
                "size": size,
                "disks": disks,
                "certificates": certificates,
                "nodes": nodes if nodes.is_on else None,
                "error": error,
            }
        )
    else:
        rows = [*_disks(disks), *_certificates(certificates)]
        for line in [*_lines(processes, state, size, error), *rows_to_lines([*_nodes(nodes), *rows])]:
            say(line)
        for problem in problems:
            complain(problem)
        if remote:
            complain("problems of files and certificates are shown by waypost status on the host only")
    return NOT_DONE if error or needs_person else DONE


def _waiting(arguments: argparse.Namespace, error: Waits) -> int:
    """Prints what this node waits for, and where the shards are, as it has seen them. A spare alone is in order."""
    problems = [] if error.is_in_order else [plain(str(error))]
    try:
        seen = read_seen(settings_of(arguments).node_run_directory)
    except (OSError, ValueError):
        seen = None
    is_current = seen is not None and abs(time.time() - seen.at) < CURRENT_S
    if arguments.json:
        print_json(
            {
                "problems": problems,
                "waits": str(error),
                "nodes": seen if is_current else None,
                "error": error.fault if problems else None,
            }
        )
        return DONE if error.is_in_order else NOT_DONE
    rows: list[tuple[str, object]] = [] if problems else [("waypost", str(error))]
    if seen is not None and is_current:
        rows += [
            (
                f"shard {each.number} {each.name}",
                f"{each.state}, at {each.node or 'no node'}; lease renewed {each.renewed_s_ago:.0f} s ago",
            )
            for each in seen.shards
        ]
        rows += [("nodes", trouble) for trouble in seen.troubles]
    for line in rows_to_lines(rows):
        say(line)
    for problem in problems:
        complain(problem)
    return NOT_DONE if problems else DONE


def _problems(settings: Settings, processes: Processes) -> list[str]:
    """Returns what keeps clients from TLS, from a login or from mail at all, as far as this user can read the files."""
    problems = _closed_certificates(settings, processes)
    for pair in settings.certificate_pairs:
        try:
            loaded = load_pair(pair.certificate, pair.key)
        except CertificateError as error:
            if not error.is_file or all(map(_is_readable, (pair.certificate, pair.key))):
                problems.append(f"certificate {pair.certificate}: {error}; receivers do not use it")
        else:
            if loaded.not_after <= time.time():
                problems.append(f"certificate {pair.certificate}: expired on {_day(loaded.not_after)}")
            elif loaded.not_before > time.time():
                begins = f"not valid before {_day(loaded.not_before)}"
                problems.append(
                    f"certificate {pair.certificate}: {begins}; receivers do not use it if they have another"
                )
    if any(each.auth != "off" for each in settings.all_listeners):
        try:
            read_users(settings.users_file)
        except UserFileError as error:
            problems += str(error).splitlines()
        except OSError:
            pass  # this user may not read it
    if settings.nodes.is_on and (status := status_in(settings.run_directory)) is not None:
        of_settings = list(status.troubles(time.time(), (MANAGED, TUNED)))
        problems += [f"settings of all nodes: {why}" for why in of_settings]
        # A reason that holds for both is said once.
        of_users = [why for why in status.troubles(time.time(), (USERS,)) if why not in of_settings]
        problems += [f"users of all nodes: {why}" for why in of_users]
    return [plain(problem) for problem in [*problems, *_map_problems(settings)]]


def _closed_certificates(settings: Settings, processes: Processes) -> list[str]:
    """Returns the files of certificates that a running receiver cannot read, though this user can: root, after a renewal."""
    pid = next((pid for name, pid in processes.processes.items() if name.startswith("receiver.")), 0)
    ids = ids_of(pid) if pid and settings.certificate_pairs else None
    if ids is None:
        return []
    then = "receivers use the one before, and after a restart none"
    return [
        f"certificate {pair.certificate}: the receivers' user {name_of_user(ids)} cannot read {path}: {why}; {then}"
        for pair in settings.certificate_pairs
        for path, why in (unreadable(ids, (pair.certificate, pair.key)) or {}).items()
        if os.access(path, os.R_OK)
    ]


def _map_problems(settings: Settings) -> list[str]:
    """Returns the faults of the files of [route_maps], [rewriting] and [recipients]."""
    problems = []
    if all(map(_is_readable, settings.route_maps.files)):
        problems += [f"[route_maps] {fault}; {FAULT_MEANS}" for fault in route_faults(settings)]
    files = [name.removeprefix(REGEXP) for name in settings.rewriting.files]
    if all(map(_is_readable, files)):
        then = "the content read before stays in use; after a start, all mail gets 451"
        problems += [f"[rewriting] {fault}; {then}" for fault in map_faults(settings.rewriting)]
    if all(map(_is_readable, settings.recipients.relay_recipient_maps)):
        then = "the list read before stays in use, and recipients of its domains get 451 after a restart"
        problems += [f"[recipients] {fault}; {then}" for fault in recipient_faults(settings)]
    return problems


def _is_readable(path: str) -> bool:
    """Tells whether the file can be read, or is missing: not whether this user lacks the permission."""
    return os.access(path, os.R_OK) or not os.path.exists(path)


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _disks(disks: list[Disk]) -> list[tuple[str, object]]:
    """Returns a row for each disk: directories on the same one are together."""
    together: dict[int, list[Disk]] = {}
    for disk in disks:
        together.setdefault(disk.device, []).append(disk)
    rows: list[tuple[str, object]] = []
    for of_one in together.values():
        free, reserve = of_one[0].free_bytes, max(disk.reserve_bytes for disk in of_one)
        kept = f", no new mail below {size_shown(reserve)}" if reserve else ""
        names = ", ".join(disk.what for disk in of_one)
        shown = f"{size_shown(free)} free of {size_shown(of_one[0].total_bytes)}{kept}"
        rows.append((f"disk of {names}", shown + _ballast(of_one)))
    return rows


def _certificates(certificates: list[Certificate]) -> list[tuple[str, object]]:
    """Returns a row for each certificate of the receivers that the core can read; the problems name the others."""
    return [
        (f"certificate {each.path}", f"valid until {_day(each.not_after)}")
        for each in certificates
        if each.not_after is not None
    ]


def _ballast(of_one: list[Disk]) -> str:
    """Returns how much of the ballast is left on a disk; "" for a disk without one."""
    disk = max(of_one, key=lambda each: each.ballast_bytes_whole)
    if not disk.ballast_bytes_whole:
        return ""
    if disk.ballast_bytes >= disk.ballast_bytes_whole and disk.ballast_inodes >= disk.ballast_inodes_whole:
        return f", ballast whole ({size_shown(disk.ballast_bytes)}, {counted(disk.ballast_inodes, 'inode')})"
    return (
        f", ballast in use: {size_shown(disk.ballast_bytes)} of {size_shown(disk.ballast_bytes_whole)} and "
        f"{disk.ballast_inodes} of {disk.ballast_inodes_whole} inodes left"
    )


def _shard(shard: ShardState) -> str:
    """Returns whose lease it is and for how long, and what the database does not do."""
    if shard.lease_s:
        words = f"{shard.name}, lease for {shard.lease_s:.1f} s"
    else:
        words = f"{shard.name}, lease over: nothing is delivered until the database answers"
    if shard.commit_waits_s >= 1:
        words += f"; a commit waits for {shard.commit_waits_s:.0f} s"
    return "; ".join(each for each in (words, shard.trouble, shard.limits_trouble) if each)


def _nodes(nodes: Nodes) -> list[tuple[str, object]]:
    """Returns a row that says of each node whether it lives, and one about a database that does not answer."""
    if not nodes.is_on:
        return []
    if not nodes.is_current:
        since = "" if nodes.age_s is None else f" for {shown_duration(nodes.age_s)}"
        return [("nodes", f"unknown{since}: {nodes.fault}")]
    words = [
        f"{each.name} " + (f"lives{'' if each.state == 'open' else f', {each.state}'}" if each.alive else "is silent")
        for each in nodes.nodes
    ]
    return [("nodes", "; ".join(words)), *(("nodes", trouble) for trouble in nodes.troubles)]


def _row(row: ShardRow, size: Size) -> tuple[str, str]:
    """Returns the line of one of several shards; of one that does not answer, what it has is not known."""
    number = "" if row.number == UNKNOWN else f"shard {row.number}"
    name = " ".join(each for each in (number, row.name) if each)
    place = f"at {row.node}" + (", this node" if row.is_here else "") if row.node else ""
    waiting = next((each.messages for each in size.by_shard if each.number == row.number), None)
    if not row.answers:
        words = f"unknown: {row.why}"
    else:
        queued = "size unknown" if waiting is None else counted(waiting, "message")
        words = f"{queued}, {counted(row.entries_in_flight or 0, 'delivery')} in progress"
    return name, "; ".join(each for each in (place, words) if each)


def _lines(processes: Processes, state: State | None, size: Size | None, error: Fault | None) -> list[str]:
    pairs: list[tuple[str, object]] = []
    if processes.processes:
        running = ", ".join(f"{name} {pid}" for name, pid in sorted(processes.processes.items()))
        pairs.append(("processes", running))
    if state is None or size is None:
        return rows_to_lines([*pairs, ("manager", error.message if error else "")])
    pairs.append(("manager", f"up {shown_duration(state.uptime_s)}"))
    if state.shard is not None:
        pairs.append(("shard", _shard(state.shard)))
    pairs += [_row(row, size) for row in state.shards]
    if state.restored:
        pairs.append(("held", f"{state.restored} (docs/backup.md)"))
    if state.unanswered:
        pairs.append(("incomplete", state.unanswered))
    if state.stalled:
        pairs.append(("stalled", f"deliveries go out one at a time: {state.stalled}"))
    if state.active_full:
        pairs.append(("waiting", state.active_full))
    pairs += [
        ("queued", f"{counted(size.messages, 'message')}, {counted(size.recipients, 'recipient')}"),
        (
            "active",
            f"{counted(state.active_messages, 'message')}, "
            f"{counted(state.scheduler.recipients_in_core, 'recipient')} in memory, "
            f"{counted(state.scheduler.entries_in_flight, 'delivery')} in progress",
        ),
        ("receivers", len(state.receivers.keys() - {incoming(PICKUP)})),
        ("deliverers", len(state.deliverers)),
    ]
    if state.counters:
        happened = (f"{n} {name.replace('_', ' ')}" for name, n in sorted(state.counters.items()) if n)
        pairs.append(("since start", ", ".join(happened) or "nothing"))
    lanes = sorted(size.lanes.items())[:LANES_SHOWN]
    return rows_to_lines([*pairs, *((f"lane {lane}", counted(there.messages, "message")) for lane, there in lanes)])
