"""[tlsrpt]: reports about TLS to the domains that mail is sent to (RFC 8460)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from mailcore.bounds import DAY_S, bad, flag, number, text, whole
from mailcore.config import values
from mailcore.config.dkim import DkimKey

__all__ = ["DIRECTORY", "TlsRpt", "tlsrpt_warnings"]

DIRECTORY = "tlsrpt"  # in home: the counts, and what was sent


def _sender(address: str) -> str:
    if not address.isascii():
        raise bad(address, "must be of ASCII: other servers must be able to answer")
    return values.mailbox(address)


@dataclass(frozen=True, kw_only=True)
class TlsRpt:
    """[tlsrpt]: daily reports about TLS to domains that mail was sent to, if they ask for them (RFC 8460)."""

    sender: str = text(
        "",
        "address that the reports come from, and that answers go to; a [[dkim]] key must sign its domain",
        _sender,
        special={"": "no reports, and nothing is counted"},
    )
    organization: str = text("", "our name in the reports", special={"": "the domain of `sender`"})
    spread_s: int = whole(
        14_400, 0, 72_000, "seconds", "reports are sent at random times within this after the UTC day (RFC 8460 4.1)"
    )
    give_up_s: int = whole(
        DAY_S, 0, 2 * DAY_S, "seconds", "time after a report was due after which it is given up (RFC 8460 5.5)"
    )
    https: bool = flag(True, "send reports also to addresses that begin with https:")
    kinds_max: int = whole(
        10_000,
        100,
        100_000,
        "kinds",
        "maximum different sessions (domain, policy, host and result) that one deliverer counts in a day",
    )
    bytes_max: int = whole(
        8 << 20,
        1 << 16,
        256 << 20,
        "bytes",
        "maximum size of the file of these sessions; those with one domain get a tenth of it",
    )
    write_s: float = number(
        30.0, 1, 300, "seconds", "time between two writes of the counts; a kill loses the counts since the last"
    )
    keep_days: int = whole(7, 4, 400, "days", "how long counts, and the list of what was sent, are kept")

    @property
    def is_on(self) -> bool:
        """Returns whether sessions are counted and reports are sent."""
        return bool(self.sender)


def tlsrpt_warnings(settings: TlsRpt, keys: Sequence[DkimKey]) -> Iterator[str]:
    """Yields a sentence for each setting that does less than it says. ``keys``: [[dkim]]."""
    if not settings.is_on:
        changed = [each.name for each in fields(settings) if getattr(settings, each.name) != each.default]
        if changed:
            yield f"[tlsrpt] {', '.join(changed)}: no effect while sender is not set; set sender"
        return
    domain = settings.sender.rpartition("@")[2]
    if not any(domain == key.domain or (key.subdomains and domain.endswith(f".{key.domain}")) for key in keys):
        yield (
            f"[tlsrpt] sender: no [[dkim]] key signs mail from {domain}, so other servers may ignore the reports "
            "(RFC 8460 3); add a key"
        )
