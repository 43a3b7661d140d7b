"""[authenticity]: SPF, DKIM, ARC and DMARC of mail that comes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from mailcore.bounds import bad, choice, number, text, whole
from mailcore.routing.address import a_labels

__all__ = ["Authenticity", "authenticity_warnings", "authserv_id"]


def authserv_id(given: str) -> str:
    """Returns an identifier for Authentication-Results. Raises BadValue."""
    try:
        name = a_labels(given)
    except UnicodeError:
        name = ""
    if not name or not all(each.isalnum() or each in "-_." for each in name) or len(name) > 253:
        raise bad(given, "must be a domain, such as mx.example.org")
    return name


@dataclass(frozen=True, kw_only=True)
class Authenticity:
    """[authenticity]: SPF, DKIM, ARC and DMARC of mail from clients that are not in [relay] networks and have not logged in."""

    evaluate: str = choice(
        "off",
        ("off", "mx", "all"),
        "nothing; mail that comes to listeners with the purpose mx; to all listeners. The results go into a header field "
        "Authentication-Results and into the log",
    )
    authserv_id: str = text(
        "",
        "our name in Authentication-Results. Fields with this name that others wrote are removed",
        authserv_id,
        special={"": "[receiver] hostname"},
    )
    dmarc: str = choice(
        "none",
        ("none", "quarantine", "reject"),
        "the most that is done with mail that fails DMARC, by the policy of its author's domain: nothing; quarantine, "
        "also where the domain wants it refused; refuse with 550 5.7.1 where the domain wants that",
    )
    quarantine: str = choice(
        "hold",
        ("hold", "header"),
        "quarantine means: the message is held until an operator releases it; it is delivered with a header field "
        "X-Quarantine, for a filter behind this host",
    )
    spf_fail: str = choice(
        "accept",
        ("accept", "reject"),
        "mail whose sender's domain says with SPF that this client may not send it: 550 5.7.23",
    )
    dkim_fail: str = choice(
        "accept", ("accept", "reject"), "mail with DKIM signatures of which none is valid: 550 5.7.20"
    )
    bad_from: str = choice(
        "accept",
        ("accept", "reject"),
        "mail without exactly one address in exactly one From field, for which there is no DMARC: 550 5.7.1",
    )
    temperror: str = choice(
        "accept",
        ("accept", "defer"),
        "mail for which the DNS did not answer in time, so that the client tries again later: 451 4.7.1",
    )
    partial_body: str = choice(
        "policy",
        ("policy", "accept"),
        "a valid DKIM signature that leaves out the end of the body (l=): has the result policy and counts for nothing, "
        "or is a signature as any other",
    )
    rsa_bits_min: int = whole(1024, 1024, 4096, "bits", "shorter RSA keys have the result policy (RFC 8301)")
    signatures_max: int = whole(10, 1, 100, "signatures", "DKIM signatures of a message that are checked, from the top")
    arc_sets_max: int = whole(20, 1, 50, "sets", "a longer ARC chain has failed")
    timeout_s: float = number(
        20, 1, 120, "seconds", "time for all look-ups of a message; RFC 7208 asks for 20 seconds or more"
    )
    lookups_max: int = whole(100, 1, 10_000, "look-ups", "DNS questions of one process at once; further ones wait")


def authenticity_warnings(settings: Authenticity) -> Iterator[str]:
    """Yields a sentence for each setting that does less than it says."""
    if settings.evaluate == "off":
        changed = [each.name for each in fields(settings) if getattr(settings, each.name) != each.default]
        if changed:
            yield f'[authenticity] {", ".join(changed)}: no effect while evaluate is "off"; set evaluate to "mx" or "all"'
    elif settings.dmarc == "reject" and settings.bad_from == "accept":
        yield (
            '[authenticity] dmarc = "reject" is evaded by mail with two From fields, or with a wrong address in From, for '
            'which there is no DMARC; set bad_from = "reject"'
        )
