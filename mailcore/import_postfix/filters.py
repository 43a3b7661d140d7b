"""Translates smtpd_milters and the milter settings of Postfix to [receiver] milters and [[milter]]."""

from __future__ import annotations

from typing import Any

from mailcore.bounds import BadValue
from mailcore.config.milters import milter_address
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.main_cf import split_list
from mailcore.import_postfix.values import ValueFault, port, seconds

__all__ = ["filters"]

# Postfix's parameter for all milters, its name for one, and our key.
_TIMES = (
    ("milter_connect_timeout", "connect_timeout", "connect_timeout_s"),
    ("milter_command_timeout", "command_timeout", "command_timeout_s"),
    ("milter_content_timeout", "content_timeout", "content_timeout_s"),
)
_ACTIONS = ("tempfail", "accept", "reject", "quarantine")
_CHROOT = "Postfix looks for the path below its queue directory if smtpd is chrooted; check it"


def filters(machine: Machine, draft: Draft) -> None:
    """Sets the milters of mail that comes over SMTP."""
    name = "smtpd_milters"
    given = split_list(machine.look(name))
    shared = _shared(machine, draft, used=bool(given))
    for element in given:
        try:
            address, own, notes = _milter(element, machine.cf.value("queue_directory"))
        except ValueError as error:
            draft.left(machine.where(name), f"{name} = {element}", f"{error}; add it to [receiver] milters manually")
            continue
        addresses = draft.sections.setdefault("receiver", {}).setdefault("milters", [])
        if address in addresses:
            continue
        addresses.append(address)
        settings = shared | own
        if settings:
            draft.milters[address] = settings
        said = f"[receiver] milters has {address}"
        if notes:
            draft.changed(machine.where(name), f"{name} = {element}", f"{said}: {'; '.join(notes)}")
        else:
            draft.taken(machine.where(name), f"{name} = {element}", said)


def _shared(machine: Machine, draft: Draft, used: bool) -> dict[str, Any]:
    """Returns the settings that Postfix has for all milters."""
    settings: dict[str, Any] = {}
    for name, own, key in (("milter_default_action", "default_action", "default_action"), *_TIMES):
        if name not in machine.cf:
            continue
        try:
            value, note = _setting(own, machine.look(name))
        except ValueError as error:
            draft.left(machine.where(name), machine.what(name), f"{error}; Waypost uses its default")
            continue
        settings[key] = value
        if not used:
            draft.taken(machine.where(name), machine.what(name), "no milter uses it")
        elif note:
            draft.changed(machine.where(name), machine.what(name), f"[[milter]] {key} = {value}: {note}")
        else:
            draft.taken(machine.where(name), machine.what(name), f"[[milter]] {key} = {value}")
    return settings


def _milter(element: str, queue_directory: str) -> tuple[str, dict[str, Any], list[str]]:
    """Returns address, settings and differences of one milter. Raises ValueError."""
    words = split_list(element[1:-1]) if element.startswith("{") and element.endswith("}") else [element]
    if not words:
        raise ValueFault("the milter has no address")
    address, notes = _address(words[0], queue_directory)
    settings: dict[str, Any] = {}
    for word in words[1:]:
        name, _, value = word.strip("{}").partition("=")
        name = name.strip()
        keys = {own: key for _, own, key in _TIMES} | {"default_action": "default_action"}
        if name not in keys:
            notes.append(f"without {name}")
            continue
        settings[keys[name]], note = _setting(name, value.strip())
        if note:
            notes.append(note)
    return address, settings, notes


def _address(text: str, queue_directory: str) -> tuple[str, list[str]]:
    kind, _, place = text.partition(":")
    notes = []
    if kind in ("unix", "local"):
        if not place.startswith("/"):
            place = f"{queue_directory.rstrip('/')}/{place}"
        else:
            notes.append(_CHROOT)
        text = f"unix:{place}"
    elif kind == "inet":
        host, _, service = place.rpartition(":")
        text = f"inet:{host}:{port(service)}"
    try:
        return milter_address(text), notes
    except BadValue as error:
        raise ValueFault(error.reason) from None


def _setting(name: str, text: str) -> tuple[Any, str]:
    """Returns a value of ours, and why it differs. Raises ValueError."""
    if name != "default_action":
        low, high = 0.1, 3600.0
        return min(max(low, float(seconds(text))), high), ""
    if text == "shutdown":
        return "tempfail", "Waypost does not end the session"
    if text not in _ACTIONS:
        raise ValueFault(f"{text!a} is not an action")
    return text, ""
