"""The macros that filters get with each step: Postfix's lists of them, and the values of a session."""

from __future__ import annotations

from collections.abc import Mapping

from mailcore.milter.protocol import Macros, Step, macro_packet

__all__ = ["DEFAULT", "NO_MACROS", "Names", "macros_of", "names_of"]

Names = tuple[tuple[str, bytes], ...]  # of macros: the name, and as it is sent
NO_MACROS: Names = ()

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


def names_of(step: Step, chosen: Macros) -> Names:
    """Returns the macros of a step; ``chosen`` are those the filter asked for."""
    names = chosen.get(step)
    return _DEFAULT_NAMES.get(step, NO_MACROS) if names is None else _as_sent(names)


def macros_of(step: Step, names: Names, values: Mapping[str, str]) -> bytes:
    """Returns the packet with those macros of a step that have a value; b"" if none has."""
    return macro_packet(step, [(sent, value) for name, sent in names if (value := values.get(name))]) if names else b""


def _as_sent(names: tuple[str, ...]) -> Names:
    return tuple((name, name.encode("ascii", "replace") + b"\0") for name in names)


_DEFAULT_NAMES = {step: _as_sent(names) for step, names in DEFAULT.items()}
