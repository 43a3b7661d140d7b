"""Translates the lists of milters and their settings to those of [receiver] and [[listener]], and to [[milter]]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mailcore.bounds import BadValue
from mailcore.config.milters import milter_address
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.main_cf import split_list
from mailcore.import_postfix.values import ValueFault, port, seconds

__all__ = ["filters", "milters_of_service"]

_LISTS = {"smtpd_milters": "milters", "non_smtpd_milters": "non_smtpd_milters"}  # ours in [receiver]

# Postfix's parameter for all milters, its name for one, and our key.
_TIMES = (
    ("milter_connect_timeout", "connect_timeout", "connect_timeout_s"),
    ("milter_command_timeout", "command_timeout", "command_timeout_s"),
    ("milter_content_timeout", "content_timeout", "content_timeout_s"),
)
_ACTIONS = ("tempfail", "accept", "reject", "quarantine")
_CHROOT = "Postfix looks for the path below its queue directory if smtpd is chrooted; check it"


def filters(machine: Machine, draft: Draft) -> None:
    """Sets the milters of mail that comes over SMTP, and of other mail. The listeners are known already."""
    lists = {name: split_list(machine.look(name)) for name in _LISTS}
    used = any(lists.values()) or any(each.get("milters") for each in draft.listeners)
    shared = _shared(machine, draft, used=used)
    for name, given in lists.items():
        key = _LISTS[name]
        for element in given:
            _take(machine, draft, element, shared, key, machine.where(name), f"{name} = {element}")


def _take(
    machine: Machine, draft: Draft, element: str, shared: dict[str, Any], key: str, where: str, what: str
) -> None:
    try:
        address, own, notes = _milter(element, machine.cf.value("queue_directory"))
    except ValueError as error:
        draft.left(where, what, f"{error}; add it to [receiver] {key} manually")
        return
    addresses = draft.sections.setdefault("receiver", {}).setdefault(key, [])
    if address in addresses:
        return
    addresses.append(address)
    if shared | own:
        draft.milters.setdefault(address, shared | own)
    said = f"[receiver] {key} has {address}"
    if notes:
        draft.changed(where, what, f"{said}: {'; '.join(notes)}")
    else:
        draft.taken(where, what, said)


def milters_of_service(machine: Machine, draft: Draft, options: Mapping[str, str], where: str, what: str) -> list[str]:
    """Returns the milters of one line of master.cf, which has smtpd_milters of its own."""
    shared = _shared(machine, Draft(), used=True)  # the findings come with those of main.cf
    found: list[str] = []
    for element in split_list(machine.cf.value("smtpd_milters", options)):
        try:
            address, own, notes = _milter(element, machine.cf.value("queue_directory"))
        except ValueError as error:
            draft.left(where, f"{what}: smtpd_milters = {element}", f"{error}; add it to milters of this [[listener]]")
            continue
        if notes:
            draft.changed(where, f"{what}: smtpd_milters = {element}", "; ".join(notes))
        if address not in found:
            found.append(address)
        if shared | own:
            draft.milters.setdefault(address, shared | own)
    return found


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
