"""The table of commands of ``waypost``. A function for each command imports its module on demand.

So ``waypost queue size`` does not load the modules of ``waypost mailcore``, and mypy and the import contracts still see every
import. A module has ``configure(parser)``, or ``main(argv)`` if it parses its command line itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

__all__ = ["COMMANDS", "version"]


def version() -> str:
    """Returns the installed version of Waypost. Importing ``importlib.metadata`` takes 30 ms, which only --version needs."""
    from importlib import metadata

    return metadata.version("waypost")


def _mailcore() -> ModuleType:
    from mailcore.cli import mailcore

    return mailcore


def _setup() -> ModuleType:
    from mailcore.setup import command

    return command


def _status() -> ModuleType:
    from mailcore.cli import status

    return status


def _doctor() -> ModuleType:
    from mailcore.cli import doctor

    return doctor


def _top() -> ModuleType:
    from mailcore.cli import top

    return top


def _tail() -> ModuleType:
    from mailcore.cli import tail

    return tail


def _metrics() -> ModuleType:
    from mailcore.cli import metrics

    return metrics


def _check_config() -> ModuleType:
    from mailcore.cli import check_config

    return check_config


def _reload() -> ModuleType:
    from mailcore.cli import reload

    return reload


def _settings() -> ModuleType:
    from mailcore.cli import settings

    return settings


def _inject() -> ModuleType:
    from mailcore.cli import inject

    return inject


def _import_postfix() -> ModuleType:
    from mailcore.import_postfix import command

    return command


def _queue() -> ModuleType:
    from mailcore.cli.queue import command

    return command


def _route() -> ModuleType:
    from mailcore.cli import route

    return route


def _ping() -> ModuleType:
    from mailcore.cli import ping

    return ping


def _transport() -> ModuleType:
    from mailcore.cli import transport

    return transport


def _destination() -> ModuleType:
    from mailcore.cli import destination

    return destination


def _report() -> ModuleType:
    from mailcore.cli import report

    return report


def _log() -> ModuleType:
    from mailcore.cli import log

    return log


def _events() -> ModuleType:
    from mailcore.cli import events

    return events


def _export() -> ModuleType:
    from mailcore.cli import export

    return export


def _backup() -> ModuleType:
    from mailcore.cli import backup

    return backup


def _restore() -> ModuleType:
    from mailcore.cli import restore

    return restore


def _identity() -> ModuleType:
    from mailcore.cli import identity

    return identity


def _node() -> ModuleType:
    from mailcore.cli import node

    return node


def _shard() -> ModuleType:
    from mailcore.cli import shard

    return shard


def _user() -> ModuleType:
    from mailcore.cli import user

    return user


def _tlsrpt() -> ModuleType:
    from mailcore.cli import tlsrpt

    return tlsrpt


def _dkim() -> ModuleType:
    from mailcore.cli import dkim

    return dkim


def _certificate() -> ModuleType:
    from mailcore.cli import certificate

    return certificate


def _map() -> ModuleType:
    from mailcore.cli import map

    return map


def _kept() -> ModuleType:
    from mailcore.cli import kept

    return kept


def _simulate() -> ModuleType:
    from mailcore.cli.simulate import command

    return command


def _completion() -> ModuleType:
    from mailcore.cli import completion

    return completion


def _help() -> ModuleType:
    from mailcore.cli import help

    return help


def _lab() -> ModuleType:
    from mailcore.lab import main

    return main


def _demo() -> ModuleType:
    from mailcore.lab import demo

    return demo


# name -> the function that imports its module, and its line of help
COMMANDS: dict[str, tuple[Callable[[], ModuleType], str]] = {
    "mailcore": (_mailcore, "run the mail server in the foreground"),
    "setup": (_setup, "make an installed package ready for its first mail; print the portal's address and password"),
    "status": (_status, "show processes, queue size and deliveries in progress"),
    "ping": (_ping, "ask the control process whether it answers"),
    "doctor": (_doctor, "check this host and Waypost; print problems and remedies; change nothing"),
    "top": (_top, "show queue, rates and destinations, live"),
    "tail": (_tail, "print the mail log as it is written, filtered"),
    "metrics": (_metrics, "print the metrics that a monitoring system reads"),
    "reload": (_reload, "bring a changed configuration file into force while Waypost runs"),
    "settings": (_settings, "show the settings and their origin; change managed ones, return to earlier states"),
    "check-config": (_check_config, "check the configuration file and print all settings"),
    "inject": (_inject, "add a message from a file or stdin to the queue"),
    "import-postfix": (_import_postfix, "translate the settings of Postfix; import its queue"),
    "queue": (_queue, "show and change messages in the queue"),
    "route": (_route, "show the routes table, and where mail for an address would go"),
    "transport": (_transport, "show and change delivery parameters while Waypost runs"),
    "destination": (_destination, "show, suspend, resume and tune destinations"),
    "report": (_report, "make the report of a day"),
    "log": (_log, "print the internal records of the queue (not mail.log)"),
    "events": (_events, "print what happened to messages, from a position on; follow it"),
    "export": (_export, "show the progress of the event export; export now; print an event file"),
    "backup": (_backup, "save configuration, portal database and keys to one file; with --queue, also the mail"),
    "restore": (_restore, "restore a backup; restored mail is held"),
    "identity": (_identity, "show which disks belong to this Waypost; adopt one after another is lost"),
    "node": (_node, "let nodes in that trust each other; show them, take one out of service and back"),
    "shard": (_shard, "show the shards that a database keeps; move one, take mail of a disk in, close one"),
    "user": (_user, "add, change, list and remove users who log in to send mail"),
    "dkim": (_dkim, "make a key that signs mail; compare the keys with their DNS records"),
    "certificate": (_certificate, "add, make, ask for and list the certificates that Waypost keeps"),
    "map": (_map, "put, show and list the maps that Waypost keeps: aliases, valid recipients, routes"),
    "kept": (_kept, "list and remove the files that Waypost keeps: certificates, keys, maps"),
    "tlsrpt": (_tlsrpt, "show the reports about TLS that other domains get"),
    "simulate": (_simulate, "simulate deliveries to modelled next hops"),
    "completion": (_completion, "print the completion script for bash or zsh"),
    "help": (_help, "print the help of a command"),
    "lab": (_lab, "fake SMTP servers with scripted behaviour, for tests and demos"),
    "demo": (_demo, "fake SMTP servers and test traffic, as ./run --demo starts them"),
}
