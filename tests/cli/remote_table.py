"""Command lines with which ``waypost --remote`` is compared to ``waypost`` on the host: the table behind test_remote.py.

{id}, {other}, {third}: queue ids of deferred messages; {destination}: their destination.
"""

from __future__ import annotations

__all__ = ["ALIKE", "CHANGING", "KEEPING", "SAME", "SHOWN_LIVE"]

# Looks: the same output and status, but for times.
SAME = (
    "ping",
    "status",
    "log lines --sender from@sender.example -n 2",
    "settings list",
    "settings list --json",
    "settings history",
    "queue list",
    "queue list --json --sender from@*",
    "queue list --lane nonsense",
    "queue show {id}",
    "queue show {id} --json",
    "queue show 1K0RDGV4BE900",
    "queue explain {id}",
    "queue active {id} {other}",
    "queue size",
    "queue ages",
    "queue positions",
    "queue search --sender from@sender.example",
    "queue history {id}",
    "queue headers {id}",
    "queue data {id}",
    "queue delete --all-matching --sender from@* --dry-run",
    "route list",
    "route resolve a@example.org",
    "route resolve nonsense",
    "transport list",
    "transport parameters",
    "transport check smtp process_limit=5",
    "transport check smtp process_limit=nonsense",
    "destination list",
    "destination list --json",
    "destination show {destination}",
    "destination slow",
    "destination service-times --since 2h",
    "queue list --at 1s",
    "queue list --at 1s --json --sender from@*",
    "queue size --at 1s",
    "queue list --at 2999-01-01",
    "certificate list",
    "dkim list",
    "map list --json",
    "map show kept:map/nothing.0123456789abcdef",
    "kept list",
    "user list",
    "user list --json",
    "events --json -n 2",
    "events --after nonsense",
)
# Looks whose numbers change with each second: the same fields.
ALIKE = ("transport what-if smtp process_limit=5 --duration 60s --json", "status --json")
# Changes: status, what is printed, the action in the audit log.
CHANGING = {
    "queue hold {id}": (0, "1 message held", "queue.hold"),
    "queue release {id}": (0, "1 message released", "queue.release"),
    "queue retry {id}": (0, "1 message made due", "queue.retry"),
    "queue delay {id} --until +2h": (0, "1 message delayed", "queue.delay"),
    "queue reroute {id} --to smtp:[192.0.2.1]": (0, "1 message rerouted", "queue.reroute"),
    "queue add-recipient {id} b@example.org": (0, "1 recipient added", "queue.add_recipients"),
    "queue delete {other}": (0, "1 message deleted", "queue.delete"),
    "queue undelete {other}": (0, "1 message undeleted", "queue.undelete"),
    "queue hold --all-matching --sender from@* --yes": (0, "3 messages", "queue.hold"),
    "queue purge --sender from@* --yes": (0, "3 messages", "queue.delete"),
    "transport set smtp process_limit 5": (0, "process_limit = 5", "tuning.set"),
    "destination set {destination} destination_concurrency_limit 5": (0, "= 5", "tuning.set"),
    "destination unset {destination} destination_concurrency_limit": (0, "", "tuning.set"),
    "destination suspend {destination}": (0, "", "destination.suspend"),
    "destination resume {destination}": (0, "", "destination.resume"),
    "inject --to r@example.org": (0, "^[0-9A-Z]{13,20}$", "message.send"),
    "settings set relay.domains ['a.example'] --yes": (0, "domains", "settings.change"),
    "settings unset relay.domains --yes": (0, "domains", "settings.change"),
    "settings remove deliverer.connection_idle_s --yes": (0, "connection_idle_s", "settings.change"),
    "settings unset deliverer.connection_idle_s --yes": (0, "connection_idle_s", "settings.change"),
}
# Changes of what Waypost keeps, one after the other: status, what is printed, the actions in the audit log. {cert}, {key},
# {map}: files; {file}: the one that the line before named; the password is on stdin.
KEEPING = (
    (
        "certificate add mx {cert} --key {key} --yes --why by-the-test",
        "kept:certificate/mx",
        "certificate.add settings.change",
    ),
    (
        "certificate new own.example.org --for own.example.org --yes --why x",
        "own.example.org",
        "certificate.make settings.change",
    ),
    ("certificate request new.example.org", "BEGIN CERTIFICATE REQUEST", "certificate.request"),
    ("dkim new sender.example s1", "v=DKIM1; k=rsa", "dkim.make"),
    ("dkim use sender.example s1 --unpublished --yes", "dkim", "settings.change"),
    ("map put aliases {map} --in rewriting.virtual_alias_maps --yes", "virtual_alias_maps", "map.put settings.change"),
    ("map show {file}", "all@example.org kim@example.org", ""),
    ("kept unuse {file} --yes", "virtual_alias_maps", "settings.change"),
    ("kept remove {file}", "is removed", "kept.remove"),
    ("user add kim@example.org --password-stdin", "added", "user.add"),
    ("user password kim@example.org --password-stdin --scram", "another password", "user.change"),
    ("user set kim@example.org --sender any --messages-per-hour 5", "changed", "user.change"),
    ("user disable kim@example.org", "disabled", "user.change"),
    ("user enable kim@example.org --json", '"enabled": true', "user.change"),
    ("user remove kim@example.org --yes", "removed", "user.remove"),
)
# Not compared: it draws until it is interrupted, and asks what status, destination list and queue size ask; and one that asks
# the core only for its next hops as measured.
SHOWN_LIVE = ("destination outcomes", "top", "simulate", "settings return", "queue bounce")
