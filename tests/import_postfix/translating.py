"""A main.cf of a test's, what is written for it, and what is said."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.import_postfix.draft import Draft, Finding
from mailcore.import_postfix.translation import translate
from mailcore.routing.resolve import Resolved, Routing

__all__ = ["MASTER", "route_of", "said_of", "settings_of", "told_of"]

MASTER = """
# service type private unpriv chroot wakeup maxproc command
smtp      inet  n  -  y  -  -  smtpd
2525      inet  n  -  y  -  -  smtpd
  -o content_filter= -o smtpd_client_restrictions=permit
submission inet n  -  y  -  -  smtpd
  -o smtpd_sasl_auth_enable=yes
smtps     inet  n  -  y  -  -  smtpd
  -o { smtpd_tls_wrappermode = yes }
smtp      unix  -  -  y  -  -  smtp
relay     unix  -  -  y  -  30 smtp
slow      unix  -  -  y  -  2  smtp
  -o smtp_tls_security_level=encrypt
  -o smtp_bind_address=192.0.2.1
Old.Hop   unix  -  -  y  -  -  smtp
lmtp      unix  -  -  y  -  -  lmtp
error     unix  -  -  y  -  -  error
maildrop  unix  -  n  n  -  -  pipe
  flags=DRhu user=vmail argv=/usr/bin/maildrop -d ${recipient}
"""


def settings_of(draft: Draft, directory: Path) -> Settings:
    """As the appliance takes them."""
    path = directory.parent / "waypost.toml"
    path.write_text(draft.toml("home", ["Made."]))
    return load(path)


def said_of(draft: Draft, what: str) -> list[Finding]:
    return [each for each in draft.findings if each.what.startswith(what)]


def route_of(settings: Settings, address: str) -> str:
    resolved = Routing(settings.routes, settings.transports).resolve(address)
    assert isinstance(resolved, Resolved)
    return resolved.destination


def told_of(directory: Path, main: str, **tables: str) -> tuple[Draft, Settings]:
    """Of a main.cf that names its tables as DIR/name; the settings as the appliance takes them."""
    etc = directory / "etc"
    etc.mkdir()
    for name, text in tables.items():
        (etc / name).write_text(text)
    (etc / "main.cf").write_text(main.replace("DIR", str(etc)))
    (etc / "master.cf").write_text(MASTER)
    draft, _ = translate(etc, "mail.example.org")
    return draft, settings_of(draft, etc)
