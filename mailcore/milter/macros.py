"""The macros that filters get with each step: Postfix's lists of them, and the values of a session."""

from __future__ import annotations

from collections.abc import Mapping

from mailcore.milter.protocol import Macros, Step, macro_packet

__all__ = ["DEFAULT", "macros_of"]

# As Postfix's milter_*_macros; {client_*} besides, since rspamd and others ask for them at MAIL.
DEFAULT: Macros = {
    Step.CONNECT: ("j", "{daemon_name}", "{daemon_addr}", "v", "_", "{client_addr}", "{client_name}", "{client_port}"),
    Step.HELO: ("{tls_version}", "{cipher}", "{cipher_bits}"),
    Step.MAIL: (
        "i",
        "{auth_type}",
        "{auth_authen}",
        "{mail_addr}",
        "{mail_host}",
        "{mail_mailer}",
        "{client_addr}",
        "{client_name}",
        "{tls_version}",
        "{cipher}",
    ),
    Step.RCPT: ("i", "{rcpt_addr}", "{rcpt_host}", "{rcpt_mailer}"),
    Step.DATA: ("i",),
    Step.END_OF_HEADER: ("i",),
    Step.END_OF_BODY: ("i",),
}


def macros_of(step: Step, chosen: Macros, values: Mapping[str, str]) -> bytes:
    """Returns the packet with those macros of a step that have a value; ``chosen`` are those the filter asked for."""
    names = chosen.get(step)
    if names is None:
        names = DEFAULT.get(step, ())
    return macro_packet(step, [(name, values[name]) for name in names if values.get(name)])
