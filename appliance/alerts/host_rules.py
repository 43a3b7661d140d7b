"""Rules about the host: disks, certificates, and the DNS records of keys. Pure, as ``rules`` says.

Keeps law: unknown-is-not-good (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from appliance.alerts import links
from appliance.alerts.causes import Cause, Found, Severity, key_of, shortened, time_of
from appliance.alerts.facts import DiskSpace, Facts, Unknown
from appliance.common.templatetags.waypost import size, span, visible
from mailcore.config.alerts import Alerts
from mailcore.counted import counted

__all__ = ["certificate", "disk", "dkim"]

URGENT_S = 3 * 86_400  # before a certificate expires


def disk(facts: Facts, settings: Alerts, found: Found) -> None:
    """Looks for disks with little free space, and for deliveries that are limited by a full one."""
    if isinstance(facts.state, Unknown):
        found.unknown.append(facts.state)
    elif facts.state.stalled:
        found.causes.append(
            Cause(
                key=key_of("disk", "stalled"),
                rule="disk",
                severity=Severity.CRITICAL,
                summary="The disk is full; deliveries go out one at a time.",
                detail=shortened(facts.state.stalled),
                link=links.OVERVIEW,
            )
        )
    if isinstance(facts.disks, Unknown):
        found.unknown.append(facts.disks)
        return
    together: dict[int, list[DiskSpace]] = {}
    for each in facts.disks:
        together.setdefault(each.device, []).append(each)
    for of_one in together.values():
        found.causes += _of_disk(of_one, settings)


def _of_disk(of_one: list[DiskSpace], settings: Alerts) -> Iterator[Cause]:
    """Yields the causes of one disk, of which several directories may be; the one that needs most room decides."""
    names = ", ".join(disk.what for disk in of_one)
    free = min(disk.free_bytes for disk in of_one)
    reserve = max(disk.reserve_bytes for disk in of_one)
    own = settings.portal_disk_free_bytes if any(disk.what in ("portal", "log") for disk in of_one) else 0
    if free < max(reserve * settings.disk_reserve_times, own):
        stopped = reserve > 0 and free <= reserve
        yield Cause(
            key=key_of("disk", f"space:{of_one[0].what}"),
            rule="disk",
            severity=Severity.CRITICAL if stopped else Severity.WARNING,
            summary=f"The disk of {names} has {size(free)} free" + ("; new mail is refused." if stopped else "."),
            detail=shortened(
                f"{of_one[0].path}; new mail gets 452 below {size(reserve)}." if reserve else of_one[0].path
            ),
            link=links.OVERVIEW,
        )
    inodes = min((disk.free_inodes for disk in of_one if disk.free_inodes is not None), default=None)
    kept = max(disk.reserve_inodes for disk in of_one)
    if inodes is not None and kept and inodes < kept * settings.disk_reserve_times:
        stopped = inodes <= kept
        yield Cause(
            key=key_of("disk", f"inodes:{of_one[0].what}"),
            rule="disk",
            severity=Severity.CRITICAL if stopped else Severity.WARNING,
            summary=f"The disk of {names} has {counted(inodes, 'free inode')}"
            + ("; new mail is refused." if stopped else "."),
            detail=shortened(f"{of_one[0].path}; new mail gets 452 below {kept}."),
            link=links.OVERVIEW,
        )


def certificate(facts: Facts, settings: Alerts, found: Found) -> None:
    """Looks for certificates that expire soon."""
    if isinstance(facts.certificates, Unknown):
        found.unknown.append(facts.certificates)
        return
    for each in facts.certificates.certificates:
        key = key_of("certificate", each.path)
        if each.not_after is None:
            found.unknown.append(Unknown(f"certificate {visible(each.path)}: {visible(each.fault)}"))
            found.held.add(key)
            continue
        left = each.not_after - facts.at
        if left >= settings.certificate_days * 86_400:
            continue
        when = f"expired on {time_of(each.not_after)}" if left <= 0 else f"expires in {span(left)}"
        found.causes.append(
            Cause(
                key=key,
                rule="certificate",
                severity=Severity.CRITICAL if left < URGENT_S else Severity.WARNING,
                summary=f"The certificate {visible(each.path)} {when}.",
                detail=shortened(
                    f"For {', '.join(each.names)}." if each.names else "For clients that ask for no other name."
                ),
                link=links.rule("certificate"),
            )
        )


def dkim(facts: Facts, settings: Alerts, found: Found) -> None:
    """Looks for missing or unusable records of keys."""
    if isinstance(facts.key_records, Unknown):
        found.unknown.append(facts.key_records)
        return
    for each in facts.key_records:
        key = key_of("dkim", each.name)
        if isinstance(each.fault, Unknown):
            found.unknown.append(each.fault)
            found.held.add(key)
        elif each.fault:
            found.causes.append(
                Cause(
                    key=key,
                    rule="dkim",
                    severity=Severity.WARNING,
                    summary=f"The DNS record {visible(each.name)} {each.fault}; other servers cannot verify our signatures.",
                    detail="waypost dkim check compares it with the key.",
                    link=links.rule("dkim"),
                )
            )
