"""``waypost setup``: makes an installed package ready for its first mail, and prints where to sign in.

Laws: it writes only what is missing, so a second run changes nothing and says so; what an administrator wrote stays. It shows a
password once, when it is made. It starts nothing while another program holds a port, and changes
nothing on a host that Ansible set up, whose units and settings are others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError, NotRunning, TimedOut
from mailcore.control.protocol.state import Processes
from mailcore.manager_answers import State
from mailcore.queue.lanes import incoming
from mailcore.setup import certificate, portal
from mailcore.setup.first_settings import Answers, first_settings, host_addresses, own_name, url_of
from mailcore.setup.ports import holders
from mailcore.setup.units import CORE, PORTAL, PORTAL_SERVICES, Systemd, UnitsError, socket_addresses, wanted_units
from mailcore.terminal.command import DONE, INSTALLED, NOT_DONE, UsageError, who
from mailcore.terminal.output import complain, plain, print_json, say

__all__ = ["configure"]

HOME, RUN, LOG = Path("/var/lib/waypost"), Path("/run/waypost"), Path("/var/log/waypost")
RECEIVER_GROUP = "waypost-receiver"
TMPFILES = "/usr/lib/tmpfiles.d/waypost.conf"
WAIT_S = 60.0  # for a core that recovers, and a portal that loads
LOOK_S = 0.2
MAIL_SERVERS = ("master", "exim4", "exim", "sendmail", "sendmail-mta", "opensmtpd", "smtpd")


class SetupError(Exception):
    """Setup cannot continue; the message says what to do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = (
        "Run as root after the package is installed, and again after a change of the addresses to listen on. It writes "
        "waypost.toml, certificates and the portal's database only where they are missing, and starts the services. The "
        "options for names and addresses count in the first run only; later, waypost.toml has them."
    )
    parser.add_argument("--hostname", metavar="NAME", help="name of this host in mail; default: its own full name")
    parser.add_argument("--url", metavar="URL", help="address of the portal in browsers; default: https://HOSTNAME")
    parser.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="further name or address for the certificates; may be repeated",
    )
    parser.add_argument(
        "--smtp", metavar="ADDRESS", default="0.0.0.0:25", help="address and port for mail; default: 0.0.0.0:25"
    )
    parser.add_argument(
        "--submission", metavar="ADDRESS", default="0.0.0.0:587", help="for users who log in; default: 0.0.0.0:587"
    )
    parser.add_argument(
        "--https", metavar="ADDRESS", default="0.0.0.0:443", help="address and port of the portal; default: 0.0.0.0:443"
    )
    parser.add_argument("--new-password", action="store_true", help="give the administrator admin a new password")
    parser.add_argument("--no-start", action="store_true", help="do not start the services; print which would start")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UsageError("setup: only root can set up this host; run it with sudo")
    config = arguments.config or INSTALLED
    try:
        found = Setup(config, arguments, Systemd()).run()
    except (SetupError, UnitsError) as error:
        complain(str(error))
        return NOT_DONE
    except portal.PortalError as error:
        complain(f"the portal's database cannot be prepared: {error}")
        return NOT_DONE
    if arguments.json:
        print_json(found)
    else:
        _show(found)
    return DONE if not found["problems"] else NOT_DONE


def _show(found: dict[str, object]) -> None:
    changes, problems, start = found["changes"], found["problems"], found["start"]
    assert isinstance(changes, list)
    assert isinstance(problems, list)
    assert isinstance(start, list)
    for change in changes:
        say(plain(change))
    if not changes:
        say("nothing to do: this host is set up")
    if start:
        say(f"not started: {plain(' '.join(start))}")
    say("")
    say(f"portal       {plain(found['url'])}")
    for address in found["addresses"] if isinstance(found["addresses"], list) else ():
        say(f"             {plain(address)}")
    if found["fingerprint"]:
        say(f"certificate  SHA-256 {found['fingerprint']}")
        say("             made by this host: compare the fingerprint when the browser warns")
    if found["password"]:
        say(f"user         {found['user']}")
        say(f"password     {found['password']}   (shown once; change it after you sign in)")
    else:
        say("password     as before; waypost setup --new-password makes a new one")
    for problem in problems:
        complain(plain(problem))


class Setup:
    """One run. ``changes`` are sentences about what it did, ``problems`` about what an administrator must do."""

    def __init__(self, config: Path, arguments: argparse.Namespace, systemd: Systemd) -> None:
        self.config, self.etc, self.arguments, self.systemd = config, config.parent, arguments, systemd
        self.changes: list[str] = []
        self.problems: list[str] = []

    def run(self) -> dict[str, object]:
        """Does all steps; returns what is to be shown. Raises SetupError, UnitsError, PortalError, ConfigError, OSError."""
        if (unit := self.systemd.own / "waypost-core.service").exists():
            raise SetupError(
                f"Ansible has set up this host (there is {unit}): change it with the playbook (docs/install.md)"
            )
        if not portal.has_user():
            raise SetupError(
                f"this host has no user {portal.USER}: install the package of Waypost first, which makes it (docs/install.md)"
            )
        is_first = not self.config.exists()
        if is_first:
            self._write_settings()
        settings = load(self.config, look_at_certificate=False)
        self._check_name(settings)
        certificates = self._certificates(settings)
        load(self.config)  # with the certificates
        if portal.write_environment(self.config):
            self.changes.append(f"wrote {self.etc / 'portal.env'}")
        has_reports = "waypost-redis.service" in self.systemd.units()
        restart_portal = has_reports and portal.write_redis(self.config)
        self._directories(settings)
        starts = self.systemd.runs and not self.arguments.no_start
        if starts:
            self._check_ports(settings)
        password = portal.first_password(
            self.config, settings.home, new=self.arguments.new_password, by=who() or "root"
        )
        if password:
            made = "gave the administrator a new password" if self.arguments.new_password else "made the administrator"
            self.changes.append(f"{made} admin")
        waiting: list[str] = []
        if starts:
            try:
                self._start(settings, "portal" in certificates or restart_portal)
                self._wait(settings)
            except (SetupError, UnitsError) as error:  # the password is shown now or never
                self.problems.append(str(error))
        else:
            waiting = self.systemd.units()
        own = settings.portal.tls_certificate
        port = settings.portal.listen.rpartition(":")[2]
        return {
            "changes": self.changes,
            "problems": self.problems,
            "start": waiting,
            "url": f"{settings.portal.public_url.rstrip('/')}/" if settings.portal.public_url else "",
            "addresses": [f"{url_of(_in_url(each), f':{port}')}/" for each in host_addresses()] if own else [],
            "fingerprint": certificate.fingerprint(Path(own)) if own else "",
            "user": "admin",
            "password": password,
        }

    def _write_settings(self) -> None:
        given = self.arguments
        name = given.hostname or own_name()
        answers = Answers(name, given.url or url_of(name, given.https), (given.smtp,), given.submission, given.https)
        text = first_settings(answers, HOME, RUN, LOG, self.etc)
        new = self.config.with_name(f".{self.config.name}.new")
        new.write_text(text)
        new.chmod(0o644)
        load(new, look_at_certificate=False)  # a wrong option is refused before the file has its name
        new.replace(self.config)
        self.changes.append(f"wrote {self.config}")

    def _check_name(self, settings: Settings) -> None:
        name = settings.receiver.hostname
        if name and "." not in name.strip("[]"):
            self.problems.append(
                f"'{name}' is not a fully qualified domain name; other servers will reject our mail. Set [receiver] hostname "
                f"and [portal] public_url in {self.config}, and run waypost reload"
            )

    def _certificates(self, settings: Settings) -> set[str]:
        """Makes those that are missing, or that this host made and that expire soon; returns of whom."""
        names = self._names(settings)
        made = set()
        pairs = (
            ("receiver", settings.receiver.tls_certificate, settings.receiver.tls_key, ("root", RECEIVER_GROUP), 0o640),
            ("portal", settings.portal.tls_certificate, settings.portal.tls_key, (portal.USER, portal.USER), 0o600),
        )
        for role, path, key, owner, mode in pairs:
            if not path or not certificate.is_due(Path(path), time.time()):
                continue
            Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            certificate.make(Path(path), Path(key), names, owner, mode, time.time())
            made.add(role)
            self.changes.append(f"made the certificate {path} for {', '.join(names)}")
        return made

    def _names(self, settings: Settings) -> list[str]:
        in_url = settings.portal.public_url.partition("://")[2].partition("/")[0].rpartition("@")[2]
        hosts = [settings.receiver.hostname or own_name(), in_url.partition(":")[0], own_name()]
        found = [*hosts, *self.arguments.name, *host_addresses(), "localhost", "127.0.0.1", "::1"]
        return list(dict.fromkeys(name for name in found if name and not name.startswith("[")))

    def _directories(self, settings: Settings) -> None:
        """Makes the directories that the core's unit may not make, because they have the setgid bit."""
        if shutil.which("systemd-tmpfiles") and Path(TMPFILES).exists():
            subprocess.run(["systemd-tmpfiles", "--create", TMPFILES], check=True, stdin=subprocess.DEVNULL)  # noqa: S603, S607
            for number in range(settings.receiver.processes):
                lane = settings.queue_directory / incoming(number)
                if not lane.exists():
                    lane.mkdir()
                    shutil.chown(lane, "waypost", RECEIVER_GROUP)
                    lane.chmod(0o2775)

    def _check_ports(self, settings: Settings) -> None:
        wanted = [
            address
            for unit, addresses in socket_addresses(settings).items()
            if not self.systemd.is_active(unit)
            for address in addresses
        ]
        held = holders(wanted)
        if not held:
            return
        lines = "; ".join(map(str, held))
        known = sorted({each.name for each in held} & set(MAIL_SERVERS))
        unit = {"master": "postfix", "exim": "exim4", "smtpd": "opensmtpd"}.get(known[0], known[0]) if known else ""
        how = (
            f"It is another mail server. Deliver its queue, then run: systemctl disable --now {unit}. waypost import-postfix "
            "takes over the settings and the queue of a Postfix"
            if known
            else f"Stop it, or set another address in {self.config}"
        )
        raise SetupError(f"{lines}. {how}. Then run waypost setup again")

    def _start(self, settings: Settings, restart_portal: bool) -> None:
        addresses = socket_addresses(settings)
        changed = [unit for unit in (CORE, PORTAL) if self.systemd.set_addresses(unit, addresses[unit])]
        if changed:
            self.systemd.tell("daemon-reload")
        # systemd opens a socket again only while its service is stopped.
        for unit in changed:
            if self.systemd.is_active(unit):
                self.systemd.tell("stop", unit.replace(".socket", ".service"))
                self.systemd.tell("restart", unit)
                self.changes.append(f"{unit} listens on {', '.join(addresses[unit])}")
        if wanted := wanted_units(self.systemd):
            self.systemd.tell("enable", *wanted)
            self.systemd.tell("start", *wanted)
            self.changes.append(f"started {', '.join(wanted)}")
        elif restart_portal:
            self.systemd.tell("restart", *PORTAL_SERVICES)
            self.changes.append("restarted the portal")

    def _wait(self, settings: Settings) -> None:
        """Waits until the core and the portal answer. Raises SetupError with what to look at."""
        _until(lambda: _core_fault(settings), "Waypost does not answer", "journalctl --unit waypost-core")
        _until(lambda: portal.answers(settings), "the portal does not answer", "journalctl --unit waypost-portal")


def _until(fault: Callable[[], str], title: str, look: str) -> None:
    end = time.monotonic() + WAIT_S
    while reason := fault():
        if time.monotonic() > end:
            raise SetupError(f"{title}: {reason}. See {look}")
        time.sleep(LOOK_S)


def _core_fault(settings: Settings) -> str:
    """Returns why mail cannot be taken and delivered; "" if it can."""
    try:
        with ControlClient(settings.run_directory / "control.sock", who=who(), here=True) as control:
            control.ask("processes", Processes)
            state = control.ask("state", State)
    except (NotRunning, TimedOut, ControlError) as error:
        return str(error)
    return "" if state.receivers and state.deliverers else "its processes are still starting"


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address
