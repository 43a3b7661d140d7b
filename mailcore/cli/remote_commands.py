"""Says which commands work with ``waypost --remote``: those that ask the core by its control operations, and nothing else.

Law: a command is in one of the tables (tests/cli/test_remote_commands.py), so a new one is not run
here when another host was meant.
"""

from __future__ import annotations

from mailcore.terminal.command import UsageError

__all__ = ["ANYWHERE", "LOCAL", "WORKS", "refuse_unless_remote"]

CHANGES_FILES = "it works on files of the host; run it there"
ALONE = "it needs no Waypost; run it without --remote"
WORKS = frozenset(
    (
        "ping", "status", "top", "inject", "log lines",
        "certificate list", "certificate add", "certificate new", "certificate request", "dkim new", "dkim use", "dkim list",
        "map list", "map put", "map show", "kept list", "kept unuse", "kept remove", "events",
        "user add", "user password", "user set", "user disable", "user enable", "user remove", "user list",
        "settings list", "settings set", "settings remove", "settings unset", "settings history", "settings return",
        "queue list", "queue show", "queue explain", "queue active", "queue size", "queue ages", "queue positions",
        "queue search", "queue history", "queue headers", "queue data", "queue add-recipient", "queue delete",
        "queue undelete", "queue hold", "queue release", "queue retry", "queue delay", "queue reroute", "queue bounce",
        "queue purge", "route list", "route resolve",
        "transport list", "transport set", "transport parameters", "transport check", "transport what-if",
        "destination list", "destination show", "destination set", "destination suspend", "destination resume",
        "destination unset", "destination outcomes", "destination slow", "destination service-times", "simulate",
    )
)  # fmt: skip
ANYWHERE = frozenset(("help", "completion"))  # do the same with and without --remote
# The beginning of a command -> why it is refused.
LOCAL = {
    "mailcore": "it is the mail server; run it on the host",
    "doctor": "it checks the host it runs on; run it there",
    "tail": "it follows the file of the log on the host; use log lines, or the page Log",
    "metrics": "it asks several processes of the host; use its page, [metrics] listen",
    "setup": "it prepares the host it runs on; run it there",
    "reload": "it reads the configuration file of the host; change settings with settings set",
    "check-config": "it checks a file of this host",
    "import-postfix": CHANGES_FILES,
    "report": "it makes a report on the host; ask for one in the portal, or with POST /api/v1/report-runs",
    "log dump": CHANGES_FILES,
    "export": CHANGES_FILES,
    "backup": CHANGES_FILES,
    "restore": CHANGES_FILES,
    "identity": CHANGES_FILES,
    "node": "it asks the database of the host; run it there",
    "shard": "it asks the database of the host; run it there",
    "dkim check": "it reads the keys of the configuration file of the host; run it there",
    "tlsrpt": CHANGES_FILES,
    "lab": ALONE,
    "demo": ALONE,
}


def refuse_unless_remote(words: str) -> None:
    """Raises UsageError if a command, such as "queue list", works on its own host only."""
    if words in WORKS or words.partition(" ")[0] in ANYWHERE:
        return
    reason = next((why for name, why in LOCAL.items() if f"{words} ".startswith(f"{name} ")), CHANGES_FILES)
    raise UsageError(f"{words} does not work with --remote: {reason}")
