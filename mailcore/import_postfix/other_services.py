"""Reports ``-o`` options of services of master.cf that neither listen nor deliver over SMTP: cleanup, pickup, qmgr and others.

Waypost has one value of each setting for all mail, so the options are not taken over.
"""

from __future__ import annotations

from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.master_cf import Service
from mailcore.import_postfix.meanings import HOUSEKEEPING, meaning
from mailcore.import_postfix.measures import DESTINATION, MEASURES

__all__ = ["option_left", "other_services"]

_SILENT = frozenset({"syslog_name"})  # does not affect mail
_SHOWN_MAX = 60  # characters of a value of main.cf in a finding
# The mail that an option of the program is about; the name of any other program is used.
_DOES = {
    "bounce": "bounces and other reports",
    "cleanup": "mail that this service completes",
    "nqmgr": "the queue",
    "pickup": "mail of local programs",
    "qmgr": "the queue",
    "smtpd": "mail that comes to this service",
    "trivial-rewrite": "addresses and routes",
}
# Settings that are taken over from main.cf, beside those of MEASURES and DESTINATION.
# fmt: off
_OF_MAIN_CF = frozenset((
    "always_add_missing_headers", "always_bcc", "canonical_classes", "canonical_maps", "default_transport", "header_checks",
    "local_header_rewrite_clients", "milter_default_action", "mynetworks", "myorigin", "non_smtpd_milters",
    "recipient_bcc_maps", "recipient_canonical_maps", "recipient_delimiter", "relay_domains", "relay_recipient_maps",
    "relay_transport", "relayhost", "sender_bcc_maps", "sender_canonical_maps",
    "sender_dependent_default_transport_maps", "sender_dependent_relayhost_maps", "smtpd_milters", "transport_maps",
    "virtual_alias_domains", "virtual_alias_maps", *(name for name, _, _, _ in MEASURES),
    *(name for _, name, _ in DESTINATION),
))
# fmt: on


def other_services(machine: Machine, draft: Draft) -> None:
    """Adds a finding for each option; those of listeners and of transports over SMTP have theirs already."""
    delivering = {id(each) for each in machine.delivering_services()}
    for service in machine.services or ():
        if service.kind == "inet" or (service.kind, service.command) == ("pass", "smtpd") or id(service) in delivering:
            continue
        for name in sorted(service.overrides):
            if name not in _SILENT:
                option_left(machine, draft, service, name)


def option_left(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    """Reports an option of one service with the value that its mail has in Waypost."""
    where = f"master.cf:{service.line}"
    what = f"{service.name} {service.kind} {service.command} -o {name}={service.overrides[name]}"
    usual = machine.cf.value(name)
    if name in HOUSEKEEPING:
        draft.taken(where, what, "internal to Postfix; mail does not depend on it")
    elif name in machine.cf and machine.cf.value(name, service.overrides) == usual:
        draft.taken(where, what, "has the same value as in main.cf")
    elif name in _OF_MAIN_CF:
        whose = _DOES.get(service.command, f"what {service.command} does")
        shown = "empty" if not usual else usual if len(usual) <= _SHOWN_MAX else f"{usual[:_SHOWN_MAX]}…"
        said = f"Waypost has no setting for one service: the value of main.cf ({shown}) is used for {whose}, too"
        draft.left(where, what, f"{said}. If all mail may have the value of this option, set it in main.cf and repeat")
    else:
        draft.left(where, what, f"the option is for one service; {meaning(name)}")
