"""DMARC (RFC 9989, which replaces RFC 7489): whether a message is its author domain's, and what that domain wants otherwise.

The organizational domain is found by a walk up the DNS tree, at most eight questions for a domain; no list of public
suffixes is needed. Of RFC 7489, ``pct`` is kept: many records have it.

Law: a failure of the DNS is temperror; a record with an error counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mailcore.authenticity.answers import Answers
from mailcore.authenticity.author import Author
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.spf import SpfResult
from mailcore.authenticity.tags import BadTags, tags_of

__all__ = ["DmarcResult", "evaluate_dmarc"]

WALK_LABELS_MAX = 8  # RFC 9989 4.10
_POLICIES = ("none", "quarantine", "reject")
_WEAKER = {"reject": "quarantine", "quarantine": "none", "none": "none"}


class DmarcResult(NamedTuple):
    """``result``: none, pass, fail, temperror, permerror. ``policy`` is what the domain wants of this message."""

    result: str
    domain: str = ""
    policy: str = "none"
    published: str = ""  # p= or sp= as it is in the record; "" without a record
    reason: str = ""


class Policy(NamedTuple):
    """A DMARC record."""

    p: str
    sp: str = ""
    np: str = ""
    strict_dkim: bool = False
    strict_spf: bool = False
    percent: int = 100
    psd: str = "u"


class _Failed(Exception):
    """The DNS did not answer."""


def read_policy(text: str) -> Policy | None:
    """Returns the policy in a TXT record; None if it is not one."""
    if text[:8] != "v=DMARC1" or text[8:9].strip(" \t") not in ("", ";"):
        return None
    try:
        tags = tags_of(text)
    except BadTags:
        return None
    tags = {name.lower(): value.lower() for name, value in tags.items()}
    p = tags.get("p", "")
    if p not in _POLICIES:
        if "mailto:" not in tags.get("rua", ""):
            return None
        p = "none"  # RFC 9989 4.7: the domain wants reports only
    percent = int(tags["pct"]) if tags.get("pct", "").isdigit() and len(tags["pct"]) <= 3 else 100
    if tags.get("t") == "y":
        percent = 0
    sp = tags["sp"] if tags.get("sp") in _POLICIES else ""
    np = tags["np"] if tags.get("np") in _POLICIES else ""
    strict_dkim, strict_spf = tags.get("adkim") == "s", tags.get("aspf") == "s"
    return Policy(p, sp, np, strict_dkim, strict_spf, min(percent, 100), tags.get("psd", "u"))


class _Walk:
    """The records of one evaluation."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def record(self, domain: str) -> Policy | None:
        """Returns the record of this very domain. Raises _Failed."""
        found = await self._answers.find(f"_dmarc.{domain}", "TXT")
        if found.failed:
            raise _Failed
        policies = [policy for text in found.records if (policy := read_policy(text)) is not None]
        return policies[0] if len(policies) == 1 else None

    async def organization(self, domain: str) -> tuple[str, Policy | None]:
        """Returns the organizational domain, and its record, or else that of the public suffix above (RFC 9989 4.10.2).

        Raises _Failed.
        """
        labels = domain.split(".")
        below = domain
        found: tuple[str, Policy | None] = domain, None
        start = len(labels)
        while labels:
            name = ".".join(labels)
            policy = await self.record(name)
            if policy is not None:
                if policy.psd == "n":
                    return name, policy
                if policy.psd == "y" and len(labels) < start:
                    return below, found[1] if found[0] == below and found[1] else policy
                found = name, policy
            below = name
            labels = labels[1:] if len(labels) < WALK_LABELS_MAX else labels[-(WALK_LABELS_MAX - 1) :]
        return found

    async def is_aligned(self, domain: str, author: str, organization: str, *, strict: bool) -> bool:
        """Returns whether an authenticated domain counts for the author's. Raises _Failed."""
        if domain == author:
            return True
        if strict or not domain:
            return False
        return (await self.organization(domain))[0] == organization

    async def exists(self, domain: str) -> bool:
        """Returns whether a domain has a host or a mail host. Raises _Failed."""
        for kind in ("MX", "A", "AAAA"):
            found = await self._answers.find(domain, kind)
            if found.failed:
                raise _Failed
            if found.records:
                return True
        return False


async def evaluate_dmarc(
    answers: Answers,
    author: Author,
    spf: SpfResult,
    signatures: Sequence[DkimResult],
    chance: Callable[[], float],
) -> DmarcResult:
    """Returns the result for a message. ``spf``: of MAIL FROM, or of HELO without it; ``chance`` for pct, in 0..1."""
    if not author.domain:
        return DmarcResult("permerror", reason=author.reason)
    walk = _Walk(answers)
    domain = author.domain
    try:
        organization, above = await walk.organization(domain)
        own = await walk.record(domain)
        policy = own or above
        if policy is None:
            return DmarcResult("none", domain)
        wanted = policy.p
        if own is None:
            wanted = policy.sp or policy.p
            if policy.np and not await walk.exists(domain):
                wanted = policy.np
        uncertain = spf.result == "temperror"
        if spf.result == "pass" and await walk.is_aligned(
            spf.domain.lower().removesuffix("."), domain, organization, strict=policy.strict_spf
        ):
            return DmarcResult("pass", domain, "none", wanted)
        for each in signatures:
            uncertain = uncertain or each.result == "temperror"
            if each.result == "pass" and await walk.is_aligned(
                each.domain, domain, organization, strict=policy.strict_dkim
            ):
                return DmarcResult("pass", domain, "none", wanted)
    except _Failed:
        return DmarcResult("temperror", domain, reason="a DMARC record could not be looked up")
    if uncertain:
        return DmarcResult("temperror", domain, "none", wanted, "SPF or DKIM could not be looked up")
    applied = wanted if policy.percent >= 100 or 100 * chance() < policy.percent else _WEAKER[wanted]
    return DmarcResult("fail", domain, applied, wanted)
