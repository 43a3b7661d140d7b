"""Translates the certificate, relay permissions and domains of the old host to [receiver] and [relay]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mailcore.config import values
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.dropped import read_origin
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.master_cf import Service
from mailcore.import_postfix.relay_restrictions import refusing_list, say_refused
from mailcore.import_postfix.tables import TableFault, networks_without
from mailcore.import_postfix.values import truth

__all__ = ["local_domains", "networks", "origin_domain", "relay_domains", "server_names", "tls"]

_NAMED_MAX = 5  # domains named in a finding; the rest is counted


def server_names(machine: Machine, draft: Draft) -> None:
    """Sets the names in the greeting and in EHLO."""
    if not machine.has_name:
        _say_no_name(machine, draft)
    for name, section in (("myhostname", "receiver"), ("smtp_helo_name", "deliverer")):
        text = machine.look(name)
        if machine.needs_name(name):
            if name in machine.cf:
                draft.left(machine.where(name), machine.what(name), "myhostname is not set and not known")
            continue
        try:
            host = values.host_name(text)
        except ValueError as error:
            draft.left(machine.where(name), machine.what(name), f"{error}; Waypost uses the name of this host")
            continue
        draft.put(section, "hostname", host)
        draft.taken(machine.where(name), machine.what(name), f'[{section}] hostname = "{host}"')


def origin_domain(machine: Machine, draft: Draft) -> None:
    """Sets the domain that is added to addresses without one, from myorigin."""
    name = "myorigin"
    if name not in machine.cf:
        return  # its default is myhostname, as that of [lenient] domain is [receiver] hostname
    machine.seen.add(name)
    where, what = machine.where(name), machine.what(name)
    otherwise = "addresses without a domain get [receiver] hostname"
    if machine.needs_name(name):
        draft.left(where, what, f"myhostname is not set and not known; {otherwise}")
        return
    try:
        domain = values.host_name(read_origin(machine))
    except (TableFault, ValueError) as error:
        draft.left(where, what, f"{error}; {otherwise}")
        return
    draft.put("lenient", "domain", domain)
    whose = "for clients in [relay] networks and users who have logged in"
    draft.taken(where, what, f'[lenient] domain = "{domain}", {whose}')


def _say_no_name(machine: Machine, draft: Draft) -> None:
    """Reports that the name of the host is not known, and the settings that depend on it."""
    users = [name for name in machine.cf.given if machine.needs_name(name)]
    said = (
        f"{machine.directory} is not the directory of this host's own Postfix, so the name of its host is not known. Give it "
        "with --hostname NAME, or set hostname in [receiver] and [deliverer]; without it, Waypost uses the name of the host "
        "that it runs on"
    )
    draft.left("main.cf", "myhostname is not set", said + (f". It is used by {_some(users)}" if users else ""))


# Relay permissions


def networks(machine: Machine, draft: Draft) -> None:
    """Sets [relay] networks from mynetworks, if these clients may send anywhere in Postfix."""
    name = "mynetworks"
    machine.seen.add("mynetworks_style")
    if refusing := refusing_list(machine):
        say_refused(machine, draft, refusing)
        return
    if name not in machine.cf:
        style = machine.cf.value("mynetworks_style")
        draft.changed(
            "main.cf",
            f"{name} is not set (mynetworks_style = {style})",
            "[relay] networks is this host alone (127.0.0.0/8, ::1). Postfix made it from the machine's interfaces "
            f"({'their whole networks' if style == 'subnet' else 'their addresses'}): add other clients",
        )
        draft.put("relay", "networks", ["127.0.0.0/8", "::1/128"])
        return
    machine.seen.add(name)
    where, what = machine.where(name), machine.what(name)
    try:
        words = list(machine.tables.elements(machine.cf.list(name)))
    except TableFault as fault:
        draft.left(where, what, f"{fault}; only this host may send anywhere; add other clients to [relay] networks")
        return
    found, faults = networks_without(iter(words))
    for unread in faults:
        draft.left(where, what, f"{unread}: its clients may not send anywhere")
    texts = [str(each) for each in found]
    try:
        values.refuse_open_relay(texts)
    except ValueError as error:
        draft.left(where, what, f"{error}; only this host may send anywhere")
        return
    draft.put("relay", "networks", texts)
    if all(true for true, _ in words):
        draft.taken(where, what, f"[relay] networks: {_some(texts)}")
    else:
        draft.changed(where, what, f"[relay] networks, without the excluded ones (!): {_some(texts)}")


# Domains


def local_domains(machine: Machine, draft: Draft) -> set[str]:
    """Returns domains with mailboxes on the old host, which Waypost does not have; adds a finding for each list."""
    found: set[str] = set()
    for name, gone in (
        ("mydestination", "Waypost has no mailboxes"),
        ("virtual_mailbox_domains", "Waypost has no mailboxes"),
    ):
        machine.seen.add(name)
        unread: list[tuple[str, str]] = []
        names = {
            word.lower().rstrip(".") for true, word in machine.tables.elements(machine.cf.list(name), unread) if true
        }
        for word, why in unread:
            draft.left(machine.where(name), f"{name} = {word}", f"{why}; {gone}")
        names = {each for each in names if each and "@" not in each}
        found |= names
        if names:
            draft.left(
                machine.where(name),
                machine.what(name),
                f"{gone}: mail for {_some(sorted(names))} is refused from outside. If its mailboxes are elsewhere, add "
                "the domain to [relay] domains and a route to that host",
            )
    return found


def relay_domains(machine: Machine, draft: Draft, local: set[str], aliased: Sequence[str]) -> list[str]:
    """Sets [relay] domains, also to ``aliased``, and returns them without these.

    There are two patterns for a domain that includes its subdomains in Postfix.
    """
    name = "relay_domains"
    machine.seen |= {name, "parent_domain_matches_subdomains"}
    where, what = machine.where(name), machine.what(name)
    unread: list[tuple[str, str]] = []
    words = list(machine.tables.elements(machine.cf.list(name), unread))
    for table, why in unread:
        refused = "mail for the domains in it is refused from outside until they are in [relay] domains"
        excepted = "its exclusions are not taken over; check whether that matters"
        draft.left(where, f"{name} = {table}", f"{why}; {excepted if table.startswith('!') else refused}")
    if machine.needs_name(name) and name in machine.cf:
        draft.left(where, what, "myhostname is not set and not known; add the domains made of it to [relay] domains")
    below = name in machine.cf.list("parent_domain_matches_subdomains")
    found: list[str] = []
    for true, word in words:
        if word.lower() in local or "/" in word:
            continue
        if not true:
            draft.left(
                where, what, f"{word!a} is excluded in Postfix; Waypost has no exclusions; check whether that matters"
            )
            continue
        try:
            patterns = [values.domain_pattern(word)]
        except ValueError as error:
            draft.left(where, what, str(error))
            continue
        if below and not word.startswith("."):
            patterns.append("." + patterns[0])
        found += [each for each in patterns if each not in found]
    if found or aliased:
        draft.put("relay", "domains", [*found, *(each for each in aliased if each not in found)])
    if found:
        more = "; each includes its subdomains, as set by parent_domain_matches_subdomains" if below else ""
        draft.taken(where, what, f"[relay] domains: {_some(found)}{more}")
    elif name in machine.cf and not unread and not machine.needs_name(name):
        others = "has only those of virtual_alias_domains" if aliased else "is empty"
        draft.taken(where, what, f"[relay] domains {others}; no mail is accepted from outside for others")
    return found


# TLS of the server


def tls(machine: Machine, draft: Draft) -> None:
    """Sets the certificate and key of the receivers."""
    names = (
        "smtpd_tls_cert_file",
        "smtpd_tls_key_file",
        "smtpd_tls_chain_files",
        "smtpd_tls_security_level",
        "smtpd_use_tls",
    )
    machine.seen.update(names)
    chain = machine.cf.list("smtpd_tls_chain_files")
    certificate, key = (chain[0], chain[0]) if chain else (machine.cf.value(names[0]), machine.cf.value(names[1]))
    level = machine.cf.value("smtpd_tls_security_level")
    used = bool(level and level != "none") or (not level and truth(machine.cf.value("smtpd_use_tls")))
    used = used or any(_wants_tls(each) for each in machine.services or ())
    first = next((each for each in (names[2], names[0]) if each in machine.cf), names[3])
    where, what = machine.where(first), machine.what(first)
    if not used or not certificate:
        if any(name in machine.cf for name in names):
            draft.taken(where, what, "STARTTLS is not offered, as before")
        return
    try:
        certificate, key = (str(machine.tables.path(each)) for each in (certificate, key))
        values.check_certificate(certificate, key)
    except (TableFault, ValueError) as error:
        draft.left(
            where, what, f"{error}; STARTTLS is not offered until [receiver] tls_certificate and tls_key are set"
        )
        return
    draft.put("receiver", "tls_certificate", certificate)
    draft.put("receiver", "tls_key", key)
    said = "[receiver] tls_certificate and tls_key; the user of the receivers must be able to read both"
    if len(chain) > 1:
        draft.changed(where, what, f"{said}. Only the first of {len(chain)} chains is used")
    else:
        draft.taken(where, what, said)


def _wants_tls(service: Service) -> bool:
    """Returns whether a line of master.cf has TLS although main.cf may have none."""
    options = service.overrides
    level = options.get("smtpd_tls_security_level", "")
    return service.command == "smtpd" and (
        truth(options.get("smtpd_tls_wrappermode", "")) or level in ("may", "encrypt")
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _NAMED_MAX
    return ", ".join(listed[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
