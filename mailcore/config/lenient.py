"""The section [lenient]: what receivers let pass from clients in [relay] networks and users who have logged in.

As Postfix does by default. Other clients are held to the RFC, and no setting changes that.
"""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import flag, text, texts
from mailcore.config import values

__all__ = ["STRICT", "Lenient"]


@dataclass(frozen=True, kw_only=True)
class Lenient:
    """[lenient]: mistakes of clients in `[relay] networks` and of users who have logged in that are let pass."""

    dots: bool = flag(
        True,
        "accept addresses with consecutive, leading or final dots in the local part, which is then quoted, and with a dot "
        "behind the domain, which is left out",
    )
    without_domain: bool = flag(
        True, "accept addresses without a domain and add `domain`, as Postfix's append_at_myorigin"
    )
    domain: str = text(
        "",
        "domain that is added to addresses without one, of clients and of local programs, as Postfix's myorigin; reports of "
        "failed mail are from MAILER-DAEMON there",
        values.host_name,
        special={"": "`[receiver] hostname`"},
    )
    without_brackets: bool = flag(True, "accept addresses without < and >, as Postfix without strict_rfc821_envelopes")
    helo_blanks: bool = flag(
        True, "accept blanks and octets that are not ASCII in the name after HELO and EHLO; each is recorded as _"
    )
    bare_lf_networks: tuple[str, ...] = texts(
        (),
        "networks of clients in whose data a bare LF becomes CRLF, as Postfix's smtpd_forbid_bare_newline = normalize; mail "
        "with one from any other client gets 550. The end of the data is CRLF . CRLF in both cases",
        values.network,
    )

    def own_domain(self, hostname: str) -> str:
        """Returns the domain of addresses without one, also of local programs and of our reports; ``hostname`` is our name."""
        return self.domain or hostname


STRICT = Lenient(dots=False, without_domain=False, without_brackets=False, helo_blanks=False)
