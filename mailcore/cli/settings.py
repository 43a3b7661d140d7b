"""``waypost settings``: shows where each setting comes from, changes managed ones, and returns to earlier states.

A change is checked by the core and shown, with what restarts, before it is confirmed; the command ends when it is in force.
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from typing import Any

import msgspec

from mailcore.cli.effects_text import effects_lines
from mailcore.cli.reload import NAMES
from mailcore.config.managed import dotted, named
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.effects import SettingsEffects
from mailcore.control.protocol.settings import KnownSetting, SettingsChanged, SettingsHistory, SettingsKnown
from mailcore.control.protocol.state import Ping
from mailcore.faults import Code, Fault
from mailcore.terminal.command import DONE, NOT_DONE, WRONG_USE, UsageError, add_common, control_client
from mailcore.terminal.output import complain, complain_fault, plain, print_json, say, whole_table, width
from mailcore.terminal.times import shown

__all__ = ["apply_changes", "configure"]

KEY_HELP = 'as in the file, with dots: relay.domains, routes."example.org", transports.smtp.tls'
IN_FORCE_S = 120.0  # until a change is in force
LOOK_S = 0.1
VALUE_MAX = 200  # characters of a value that are shown


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the settings that are set, with their origin")
    listing.set_defaults(run=_list)
    setting = commands.add_parser("set", help="set a value, above that of the configuration file")
    setting.add_argument("key", metavar="KEY", help=KEY_HELP)
    setting.add_argument("value", metavar="VALUE", help="as in TOML: 5, true, ['a', 'b']; other text is a string")
    setting.set_defaults(run=_set)
    unsetting = commands.add_parser(
        "unset", help="undo a change or a removal; the value of the file, or the default, counts again"
    )
    unsetting.add_argument("key", metavar="KEY", help=KEY_HELP)
    unsetting.set_defaults(run=_unset)
    removing = commands.add_parser(
        "remove", help="let a value or a row of the configuration file not count; unset returns it"
    )
    removing.add_argument("key", metavar="KEY", help=f"{KEY_HELP}; or a row, transports.NAME")
    removing.set_defaults(run=_remove)
    history = commands.add_parser("history", help="list earlier states: when, who, why, and what changed")
    history.add_argument("--limit", type=int, default=20, metavar="N", help="maximum number (default: 20)")
    history.set_defaults(run=_history)
    returning = commands.add_parser("return", help="return to an earlier state")
    returning.add_argument("revision", metavar="REVISION", help="as settings history shows it")
    returning.set_defaults(run=_return)
    for each in (setting, unsetting, removing, returning):
        each.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
        each.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
        each.add_argument(
            "--dry-run", action="store_true", help="only show what would change, restart, and become of mail"
        )
    for each in (listing, setting, unsetting, removing, history, returning):
        add_common(each)


def _list(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        known = control.ask("settings", SettingsKnown)
    if arguments.json:
        print_json(known)
        return DONE if known.in_force else NOT_DONE
    rows = [(dotted(each.key), "tuned" if each.tuned else each.origin, _listed(each)) for each in known.settings]
    for line in whole_table(("SETTING", "ORIGIN", "VALUE"), rows, width(sys.stdout)):
        say(line)
    return _said_whether_in_force(known)


def _listed(setting: KnownSetting) -> str:
    if setting.tuned:
        layers = [_value(each.value) + (f" until {shown(each.until)}" if each.until else "") for each in setting.tuned]
        if setting.origin != "tuned":
            layers.append(f"{_value(setting.value)} ({setting.origin})")
        return "; below it ".join(layers)
    if setting.origin != "removed":
        return _value(setting.value)
    if setting.below is None:
        return "removed here; the file does not have it any more"
    return f"removed here; the file still has {_value(setting.below)}"


def _said_whether_in_force(known: SettingsKnown) -> int:
    if known.fault:
        for line in known.fault.splitlines():
            complain_fault(Fault(Code.INVALID, line))
        complain("so the files are not in force; the settings before are")
    elif known.waiting:
        complain(f"not in force: {plain(', '.join(known.waiting))}; waypost reload brings the files into force")
    if known.nodes:
        complain(f"this node has other settings than the others, or may have: {plain(known.nodes)}")
    return DONE if known.in_force and not known.nodes else NOT_DONE


def _set(arguments: argparse.Namespace) -> int:
    try:
        value = tomllib.loads(f"value = {arguments.value}")["value"]
    except tomllib.TOMLDecodeError:
        value = arguments.value
    return _change(arguments, "settings_change", {"changes": [{"key": _key(arguments.key), "value": value}]})


def apply_changes(arguments: argparse.Namespace, changes: list[dict[str, Any]]) -> int:
    """Makes changes that another command has put together, as ``settings set`` would; returns the exit status."""
    return _change(arguments, "settings_change", {"changes": changes})


def _unset(arguments: argparse.Namespace) -> int:
    return _change(arguments, "settings_change", {"changes": [{"key": _key(arguments.key), "value": None}]})


def _remove(arguments: argparse.Namespace) -> int:
    return _change(arguments, "settings_change", {"changes": [{"key": _key(arguments.key), "removed": True}]})


def _return(arguments: argparse.Namespace) -> int:
    return _change(arguments, "settings_return", {"to": arguments.revision})


def _change(arguments: argparse.Namespace, operation: str, given: dict[str, Any]) -> int:
    """Shows what the change does, makes it after a confirmation, and waits until it is in force."""
    with control_client(arguments) as control:
        known = control.ask("settings", SettingsKnown)
        given["revision"] = known.revision
        planned = control.ask(operation, SettingsChanged, given | {"check": True}, why=arguments.why)
        if planned.faults:
            return _told(arguments, planned)
        asks = not arguments.yes and not arguments.json
        effects = _effects(control, given) if planned.changed and (arguments.dry_run or asks) else None
        if arguments.dry_run:
            return _told(arguments, planned, effects)
        if not planned.changed and planned.revision == known.revision:
            say("nothing changes")
            return DONE
        if asks and not _confirmed(planned, effects):
            return NOT_DONE
        made = control.ask(operation, SettingsChanged, given, why=arguments.why)
    status = _told(arguments, made)
    return status if status != DONE else _until_in_force(arguments, made.revision)


def _effects(control: ControlClient, given: dict[str, Any]) -> SettingsEffects:
    question = {name: value for name, value in given.items() if name in ("changes", "to")}
    return control.ask("settings_effects", SettingsEffects, question)


def _confirmed(planned: SettingsChanged, effects: SettingsEffects | None) -> bool:
    _show(planned, effects)
    if not sys.stdin.isatty():
        complain("give --yes to make this change without a question")
        return False
    print("Change this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _told(arguments: argparse.Namespace, answer: SettingsChanged, effects: SettingsEffects | None = None) -> int:
    if arguments.json:
        print_json(answer if effects is None else msgspec.to_builtins(answer) | {"effects": effects})
    elif not answer.faults and (arguments.yes or arguments.dry_run):
        _show(answer, effects)
    for fault in () if arguments.json else answer.faults:
        complain(plain(f"{fault.key} {fault.reason}".strip()))
    return WRONG_USE if answer.faults else DONE


def _show(answer: SettingsChanged, effects: SettingsEffects | None = None) -> None:
    for each in answer.changed:
        say(f"{plain(each.key)}: {_value(each.before)} -> {_value(each.after)}")
    say(f"restarts: {', '.join(NAMES.get(each, each) for each in answer.restarts) or 'nothing'}")
    for line in () if effects is None else effects_lines(effects):
        say(line)


def _until_in_force(arguments: argparse.Namespace, revision: str) -> int:
    """Waits until the processes have the settings of the files, and the manager answers again."""
    until = time.monotonic() + IN_FORCE_S
    known: SettingsKnown | None = None
    while time.monotonic() < until:
        try:
            with control_client(arguments) as control:
                known = control.ask("settings", SettingsKnown)
                is_over = known.in_force or known.revision != revision  # another change has come behind it
                if is_over and control.ask("ping", Ping).manager:
                    return DONE
        except ControlError:  # the control process starts again, too
            known = None
        time.sleep(LOOK_S)
    if known is not None:
        for each in known.reload.get("refused", ()):
            complain(f"not reloaded: {plain(each)}")
        return _said_whether_in_force(known)
    complain("the core does not answer; `waypost status` shows which processes run")
    return NOT_DONE


def _history(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        found = control.ask("settings_history", SettingsHistory, {"limit": arguments.limit})
    if arguments.json:
        print_json(found)
        return DONE
    for state in found.states:
        say(f"{state.revision}  {shown(state.at)}  {plain(state.who)}  {plain(state.why)}".rstrip())
        for each in state.changed:
            say(f"    {plain(each.key)}: {_value(each.before)} -> {_value(each.after)}")
    for fault in found.faults:
        complain_fault(fault)
    return DONE


def _key(text: str) -> list[str]:
    """Returns the names of a key. Raises UsageError."""
    names = named(text)
    if names is None:
        raise UsageError(f"invalid key {text!r}; write it {KEY_HELP}")
    return names


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    text = plain(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) or "empty"
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"
