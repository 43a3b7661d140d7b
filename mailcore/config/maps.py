"""The files of [rewriting] and [recipients], read into maps. Apart from the settings, which are checked without any library."""

from __future__ import annotations

from mailcore.config.rewriting import MAPS, Rewriting
from mailcore.config.settings import Settings
from mailcore.rewriting.address_map import MapFault, read_map
from mailcore.rewriting.recipient_list import read_recipients
from mailcore.rewriting.rewriting import Bounds, Maps

__all__ = ["map_faults", "read_maps", "recipient_faults"]


def map_faults(settings: Rewriting) -> list[str]:
    """Returns a line for each fault of the files, with file and line; empty if all of them can be used."""
    faults: list[str] = []
    for name in settings.files:
        try:
            read_map(name)
        except MapFault as fault:
            faults += str(fault).splitlines()
    return faults


def recipient_faults(settings: Settings) -> list[str]:
    """Returns a line for each fault of the files of valid recipients; empty if they can be used, or are not."""
    if "file" not in settings.recipients.ways.values():
        return []
    try:
        read_recipients(settings.recipients.relay_recipient_maps)
    except MapFault as fault:
        return str(fault).splitlines()
    return []


def read_maps(settings: Rewriting) -> Maps:
    """Reads all files. Raises MapFault."""
    read = {name: read_map(name, settings.recipient_delimiter) for name in settings.files}
    sender, recipient, both, aliases, sender_bcc, recipient_bcc = (
        [read[name] for name in getattr(settings, each)] for each in MAPS
    )
    bounds = Bounds(
        settings.virtual_alias_recursion_limit, settings.virtual_alias_expansion_limit, settings.recipients_max
    )
    return Maps([*sender, *both], [*recipient, *both], aliases, bounds, settings.always_bcc, sender_bcc, recipient_bcc)
