"""Secrets of the deliverers: keys of DKIM and the file of logins, and whether the deliverers' own user can read them."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.unchecked_logins import unchecked_logins
from mailcore.counted import counted
from mailcore.dkim.key import BadKey, load_key
from mailcore.doctor.as_user import ids_of_role, name_of_user, unreadable
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the keys that sign mail, and the logins to next hops."""
    keys = [each.key for each in host.settings.dkim]
    if host.settings.arc.key:
        keys.append(host.settings.arc.key)
    passwords = host.settings.client_auth.password_file
    files = dict.fromkeys([*keys, *([passwords] if passwords else [])])
    if not files:
        yield good("deliverers", "no key of DKIM and no file of logins is configured")
        return
    wrong = False
    for name, level in unchecked_logins(host.settings):
        wrong = True
        yield _unchecked(host, name, level)
    ids = ids_of_role(host, "deliverer")
    closed = {} if ids is None else unreadable(ids, list(files))
    for path, why in (closed or {}).items():
        wrong = True
        assert ids is not None
        user = name_of_user(ids)
        yield bad(
            "deliverers",
            f"{path}: the user {user} of the deliverers cannot read it ({why}); mail that needs it waits",
            f"Run: chgrp {user} {path} && chmod 0640 {path}, and look at the directories above it.",
        )
    for path in dict.fromkeys(keys):
        try:
            load_key(path)
        except BadKey as error:
            if path not in (closed or {}):
                wrong = True
                yield bad("deliverers", f"{path}: {error}; mail of its domain waits", "See waypost dkim check.")
    if ids is None:
        yield not_known(
            "deliverers",
            "cannot look at their files: no deliverer runs",
            "Start Waypost, then run waypost doctor again.",
        )
    elif closed is None:
        yield not_known("deliverers", "cannot look with the rights of their user", "Run waypost doctor as root.")
    elif not wrong:
        yield good(
            "deliverers", f"the user {name_of_user(ids)} can read {counted(len(files), 'file')} with keys or logins"
        )


def _unchecked(host: Host, name: str, level: str) -> Finding:
    """Returns a finding about a login whose next hop has a level that checks no certificate."""
    what, remedy = f"login of {name}", f'Set level = "verify" in [tls_policy."{name}"].'
    auth = host.settings.client_auth
    if auth.without_verification or auth.without_tls:
        found = f"its TLS level {level} checks no certificate: any server that answers in its place gets the password"
        return warn(what, found, remedy, level=level)
    return bad(
        what, f"its TLS level {level} checks no certificate, so its mail is deferred (4.7.11)", remedy, level=level
    )
