"""What each page says when it has nothing to show: the table behind test_states.py. A new page needs its line here.

States: the first hour of an installation (``first``), a filter or a list that finds nothing (EMPTY), an answer on its way
(LOADING), a core that is away (``away``), and a stream that is cut, which is the same on all pages.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CORE_AWAY", "EMPTY", "LOADING", "STATES", "State"]

# The page of an error of the core, and what to do about it.
CORE_AWAY = ("The core is not running", "Start it on the host", "waypost doctor", "Try again")


class State(NamedTuple):
    """``first``: words of the first hour. ``away``: words without the core: CORE_AWAY, or a page that needs no core."""

    first: str
    away: tuple[str, ...] = CORE_AWAY


STATES: dict[str, State] = {
    "/": State(
        "No mail yet Set the domains that are accepted", ("Needs you now The core is not running", "Queued messages")
    ),
    "/queue/": State("The queue is empty."),
    "/queue/ages/": State("Ages are shown here by destination as soon as mail waits"),
    "/queue/search/": State("Searches the queue, and messages that were delivered", ("Search",)),
    "/queue/changes/": State("No changes yet Select messages in the queue", ("No changes yet",)),
    "/destinations/": State("No destinations yet No mail is queued"),
    "/tuning/": State("shortest wait of a deferred message"),
    "/tuning/history/": State("No changes yet Change values under Tuning", ("The values in force are unknown",)),
    "/log/": State("started process"),
    "/settings/": State("Settings that are set"),
    "/settings/history/": State("No changes yet Each change that is made here"),
    "/settings/certificates/": State("No certificate is kept here"),
    "/settings/dkim/": State("No key is kept here Make one below"),
    "/settings/maps/": State("Add Aliases"),
    "/settings/users/": State("No users yet"),
    "/positions/": State("A start now would take about"),
    "/nodes/": State("This is one node, and its queue is on its own disk."),
    "/routes/": State("Look up the route of an address"),
    "/reports/": State("No reports yet Each night Waypost makes the report", ("No reports yet",)),
    "/reports/schedules/": State("Start it: ./run does, or the service waypost-beat", ("nightly report",)),
    "/alerts/": State("The watch has never run. Start it: ./run does", ("No rule is checked now",)),
    "/webhooks/": State("There is no webhook Make one for each program", ("There is no webhook",)),
    "/webhooks/new/": State("The program that receives the events", ("Make the webhook",)),
    "/audit/": State("sign_in", ("sign_in",)),
    "/api/v1/": State("Programs send a token with each request", ("Programs send a token",)),
}

# Addresses whose conditions nothing meets, with mail in the queue, and what the page says about it.
EMPTY: dict[str, str] = {
    "/queue/?sender=not-there@*": "No message matches This list has only what is in the queue. The search also finds",
    "/queue/?lane=hold": "No message is held Held mail waits here until an operator releases it",
    "/queue/?lane=deleted": "No deleted message can be restored",
    "/queue/search/?q=0123456789ABC": "Search for it as text",
    "/destinations/?q=not-there": "No destination matches. Show all",
    "/destinations/smtp:not-there.example/": "The core does not know it: no mail for it is queued",
    "/tuning/history/?scope=smtp&parameter=process_limit": "No changes yet This was not changed in the portal",
    "/log/?sender=not-there@*": "No line",
    "/audit/?who=not-there": "No matching entries. Show all entries",
}

# Addresses that read on after they are shown, and what they say meanwhile.
LOADING: dict[str, str] = {
    "/queue/search/?q=not-there@example.org": "searching …",
    "/?at=1795219200": "Reading events …",
    "/queue/?at=1795219200": "Reading events …",
}
