"""Which token may ask for what: the table behind test_access.py. A new operation needs its line here.

Each line: the operation's name, its method, a path of it, one of the scopes it needs ({}: any token will do), the least role of
the token's user.
"""

from __future__ import annotations

from appliance.accounts.roles import Role
from appliance.api.scopes import Scope

__all__ = ["TABLE"]

READ, QUEUE, TUNE, SEND, REPORT, BODY = Scope
VIEWER, OPERATOR, ADMINISTRATOR = Role
QUEUE_ID, TAG = "0123456789ABCDEF", "0123456789"

TABLE: dict[str, tuple[str, str, set[Scope], Role]] = {
    "overview": ("GET", "/overview", {READ}, VIEWER),
    "own_token": ("GET", "/token", set(), VIEWER),
    "messages": ("GET", "/queue/messages", {READ}, VIEWER),
    "message": ("GET", f"/queue/messages/{QUEUE_ID}", {READ}, VIEWER),
    "recipients": ("GET", f"/queue/messages/{QUEUE_ID}/recipients", {READ}, VIEWER),
    "message_data": ("GET", f"/queue/messages/{QUEUE_ID}/data", {BODY}, VIEWER),
    "changes": ("GET", "/queue/changes", {READ, QUEUE}, VIEWER),
    "change": ("GET", f"/queue/changes/{TAG}", {READ, QUEUE}, VIEWER),
    "change_messages": ("POST", "/queue/changes", {QUEUE}, OPERATOR),
    "count_messages": ("POST", "/queue/counts", {QUEUE}, OPERATOR),
    "start_change": ("POST", f"/queue/changes/{TAG}/start", {QUEUE}, OPERATOR),
    "stop_change": ("POST", f"/queue/changes/{TAG}/stop", {QUEUE}, OPERATOR),
    "undo_change": ("POST", f"/queue/changes/{TAG}/undo", {QUEUE}, OPERATOR),
    "destinations": ("GET", "/destinations", {READ}, VIEWER),
    "suspend": ("POST", "/destinations/suspend", {TUNE}, OPERATOR),
    "resume": ("POST", "/destinations/resume", {TUNE}, OPERATOR),
    "parameters": ("GET", "/tuning", {READ}, VIEWER),
    "tuning_changes": ("GET", "/tuning/changes", {READ, TUNE}, VIEWER),
    "set_parameters": ("POST", "/tuning", {TUNE}, OPERATOR),
    "reports": ("GET", "/reports", {READ}, VIEWER),
    "report": ("GET", "/reports/day/2026-11-18", {READ}, VIEWER),
    "report_table": ("GET", "/reports/day/2026-11-18/destinations", {READ}, VIEWER),
    "search": ("GET", "/queue/search?sender=a@b.example", {READ}, VIEWER),
    "ages": ("GET", "/queue/ages", {READ}, VIEWER),
    "routes": ("GET", "/routes", {READ}, VIEWER),
    "resolve": ("GET", "/routes/resolve?address=a@b.example", {READ}, VIEWER),
    "positions": ("GET", "/positions", {READ}, VIEWER),
    "report_runs": ("GET", "/report-runs", {READ, REPORT}, VIEWER),
    "report_run": ("GET", "/report-runs/1", {READ, REPORT}, VIEWER),
    "start_report": ("POST", "/report-runs", {REPORT}, OPERATOR),
    "stop_report": ("POST", "/report-runs/1/stop", {REPORT}, OPERATOR),
    "audit": ("GET", "/audit", {READ}, OPERATOR),
    "send": ("POST", "/messages", {SEND}, OPERATOR),
}
