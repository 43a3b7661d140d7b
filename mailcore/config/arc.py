"""[arc]: the key that seals mail of others when it is passed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mailcore.bounds import text
from mailcore.config.dkim import domain_name, selector_name

__all__ = ["Arc", "arc_faults"]


@dataclass(frozen=True, kw_only=True)
class Arc:
    """[arc]: the key that seals mail which came from others and was checked (`[authenticity] evaluate`), when it is sent on
    over SMTP. All three keys, or none."""

    domain: str = text("", "domain of the seal, and of the DNS record", domain_name, special={"": "mail is not sealed"})
    selector: str = text("", "name of the key in the DNS: the record is SELECTOR._domainkey.DOMAIN", selector_name)
    key: str = text("", "PEM file with the private key, which must be RSA; waypost dkim new makes one")


def arc_faults(arc: Mapping[str, Any], authenticity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields key and reason of what is missing."""
    given = [name for name in ("domain", "selector", "key") if arc.get(name)]
    if given:
        for name in ("domain", "selector", "key"):
            if name not in given:
                yield name, f"must be set, as {given[0]} is"
        if authenticity.get("evaluate", "off") == "off":
            yield given[0], 'needs results to seal; set evaluate in [authenticity] to "mx" or "all"'
