"""The files of [rewriting] and [recipients], read into maps. Apart from the settings, which are checked without any library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailcore.config.rewriting import MAPS, Rewriting
from mailcore.config.settings import Settings
from mailcore.rewriting.address_map import AddressMap, read_map
from mailcore.rewriting.header_addresses import HeaderAddresses, is_complete
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules
from mailcore.rewriting.map_text import MapFault
from mailcore.rewriting.recipient_list import read_recipients
from mailcore.rewriting.rewriting import Bounds, Maps

__all__ = ["Files", "map_faults", "read_files", "recipient_faults"]


def map_faults(settings: Rewriting) -> list[str]:
    """Returns a line for each fault of the files, with file and line; empty if all of them can be used."""
    faults: list[str] = []
    for name in settings.files:
        try:
            if name in settings.header_checks:
                read_checks(name)
            if any(name in getattr(settings, each) for each in MAPS):
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


class Files(NamedTuple):
    """The content of the files, all of them read at one time."""

    maps: Maps
    headers: HeaderRules


def read_files(settings: Rewriting, domain: str = "") -> Files:
    """Reads all files. ``domain`` completes addresses in headers; "": they stay. Raises MapFault."""
    names = dict.fromkeys(name for each in MAPS for name in getattr(settings, each))
    read = {name: read_map(name, settings.recipient_delimiter) for name in names}
    sender, recipient, both, aliases, sender_bcc, recipient_bcc = (
        [read[name] for name in getattr(settings, each)] for each in MAPS
    )
    bounds = Bounds(
        settings.virtual_alias_recursion_limit, settings.virtual_alias_expansion_limit, settings.recipients_max
    )

    def used(name: str) -> Sequence[AddressMap]:
        if name not in settings.canonical_classes:
            return ()
        return [*(sender if "sender" in name else recipient), *both]

    maps = Maps(
        used("envelope_sender"), used("envelope_recipient"), aliases, bounds, settings.always_bcc, sender_bcc, recipient_bcc,
        settings.address_maps_time_ms / 1000,
    )  # fmt: skip
    in_headers = HeaderAddresses(used("header_sender"), used("header_recipient"), domain)
    rules = HeaderRules(
        tuple(map(read_checks, settings.header_checks)),
        settings.header_size_limit,
        settings.header_checks_time_ms / 1000,
        settings.header_checks_timeout_action == "accept",
        in_headers.rewrite if in_headers.is_on else None,
        is_complete if in_headers.only_completes else None,
    )
    return Files(maps, rules)
