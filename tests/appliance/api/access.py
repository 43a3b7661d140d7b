"""Which token may ask for what: the table behind test_access.py. A new operation needs its line here.

Each line: the operation's name, its method, a path of it, one of the scopes it needs ({}: any token will do), the least role of
the token's user.
"""

from __future__ import annotations

from appliance.accounts.roles import Role
from appliance.api.scopes import Scope

__all__ = ["CONTROL", "TABLE"]

READ, QUEUE, TUNE, SEND, REPORT, BODY, ALERTS, SETTINGS, USERS, WEBHOOKS = Scope
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
    "audit_entry": ("GET", "/audit/1", {READ}, OPERATOR),
    "check_parameters": ("POST", "/tuning/check", {TUNE}, OPERATOR),
    "what_if": ("POST", "/tuning/what-if", {TUNE}, OPERATOR),
    "prediction": ("GET", "/tuning/predictions/1", {READ, TUNE}, VIEWER),
    "settings": ("GET", "/settings", {READ}, VIEWER),
    "settings_history": ("GET", "/settings/history", {READ}, VIEWER),
    "settings_export": ("GET", "/settings/export", {READ}, VIEWER),
    "check_settings": ("POST", "/settings/check", {SETTINGS}, ADMINISTRATOR),
    "effects_of_settings": ("POST", "/settings/effects", {SETTINGS}, ADMINISTRATOR),
    "change_settings": ("POST", "/settings", {SETTINGS}, ADMINISTRATOR),
    "report_settings": ("GET", "/report-settings", {READ}, VIEWER),
    "change_report_preferences": ("POST", "/report-settings", {SETTINGS}, ADMINISTRATOR),
    "change_schedule": ("POST", "/report-settings/schedules/1", {SETTINGS}, ADMINISTRATOR),
    "log_lines": ("GET", "/log", {READ}, VIEWER),
    "alerts": ("GET", "/alerts", {READ, ALERTS}, VIEWER),
    "alert": ("GET", "/alerts/1", {READ, ALERTS}, VIEWER),
    "acknowledge_alert": ("POST", "/alerts/1/acknowledge", {ALERTS}, OPERATOR),
    "silence_alert": ("POST", "/alerts/1/silence", {ALERTS}, OPERATOR),
    "alert_rules": ("GET", "/alert-rules", {READ, ALERTS}, VIEWER),
    "silence_rule": ("POST", "/alert-rules/disk/silence", {ALERTS}, OPERATOR),
    "end_silence": ("POST", "/alert-silences/1/end", {ALERTS}, OPERATOR),
    "alert_notices": ("GET", "/alert-notices", {READ, ALERTS}, VIEWER),
    "test_alerts": ("POST", "/alert-notices/test", {ALERTS}, OPERATOR),
    "users": ("GET", "/users", {USERS}, ADMINISTRATOR),
    "user": ("GET", "/users/1", {USERS}, ADMINISTRATOR),
    "create_user": ("POST", "/users", {USERS}, ADMINISTRATOR),
    "change_user": ("POST", "/users/1", {USERS}, ADMINISTRATOR),
    "set_password": ("POST", "/users/1/password", {USERS}, ADMINISTRATOR),
    "unlink_user": ("POST", "/users/1/unlink", {USERS}, ADMINISTRATOR),
    "remove_second_factor": ("POST", "/users/1/remove-second-factor", {USERS}, ADMINISTRATOR),
    "delete_user": ("POST", "/users/1/delete", {USERS}, ADMINISTRATOR),
    "roles": ("GET", "/roles", {USERS}, ADMINISTRATOR),
    "change_role": ("POST", "/roles/viewer", {USERS}, ADMINISTRATOR),
    "tokens": ("GET", "/tokens", {USERS}, ADMINISTRATOR),
    "revoke_token": ("POST", "/tokens/1/revoke", {USERS}, ADMINISTRATOR),
    "locks": ("GET", "/locks", {USERS}, ADMINISTRATOR),
    "unlock": ("POST", "/locks/1/unlock", {USERS}, ADMINISTRATOR),
    "events": ("GET", "/events", {READ}, VIEWER),
    "events_stream": ("GET", "/events/stream", {READ}, VIEWER),
    "past_size": ("GET", "/queue/past/size?at=1", {READ}, VIEWER),
    "past_messages": ("GET", "/queue/past/messages?at=1", {READ}, VIEWER),
    "past_message": ("GET", f"/queue/past/messages/{QUEUE_ID}?at=1", {READ}, VIEWER),
    "certificates": ("GET", "/certificates", {READ}, VIEWER),
    "certificate_text": ("GET", "/certificates/text?file=kept:certificate/a.1", {READ}, VIEWER),
    "add_certificate": ("POST", "/certificates", {SETTINGS}, ADMINISTRATOR),
    "make_certificate": ("POST", "/certificates/self-signed", {SETTINGS}, ADMINISTRATOR),
    "request_certificate": ("POST", "/certificates/request", {SETTINGS}, ADMINISTRATOR),
    "dkim_keys": ("GET", "/dkim-keys", {READ}, VIEWER),
    "dkim_record": ("GET", "/dkim-keys/record?file=kept:dkim/a.1", {READ}, VIEWER),
    "make_dkim_key": ("POST", "/dkim-keys", {SETTINGS}, ADMINISTRATOR),
    "use_dkim_key": ("POST", "/dkim-keys/use", {SETTINGS}, ADMINISTRATOR),
    "maps": ("GET", "/maps", {READ}, VIEWER),
    "map_text": ("GET", "/maps/text?file=kept:map/a.1", {READ}, VIEWER),
    "put_map": ("POST", "/maps", {SETTINGS}, ADMINISTRATOR),
    "use_kept_file": ("POST", "/kept-files/use", {SETTINGS}, ADMINISTRATOR),
    "remove_kept_file": ("POST", "/kept-files/remove", {SETTINGS}, ADMINISTRATOR),
    "mail_users": ("GET", "/mail-users", {READ, USERS}, VIEWER),
    "add_mail_user": ("POST", "/mail-users", {USERS}, ADMINISTRATOR),
    "change_mail_user": ("POST", "/mail-users/change", {USERS}, ADMINISTRATOR),
    "remove_mail_user": ("POST", "/mail-users/remove", {USERS}, ADMINISTRATOR),
    "webhooks": ("GET", "/webhooks", {READ, WEBHOOKS}, VIEWER),
    "webhook": ("GET", "/webhooks/1", {READ, WEBHOOKS}, VIEWER),
    "webhook_failures": ("GET", "/webhooks/1/failures", {READ, WEBHOOKS}, VIEWER),
    "make_webhook": ("POST", "/webhooks", {WEBHOOKS}, ADMINISTRATOR),
    "change_webhook": ("POST", "/webhooks/1", {WEBHOOKS}, ADMINISTRATOR),
    "make_webhook_secret": ("POST", "/webhooks/1/secret", {WEBHOOKS}, ADMINISTRATOR),
    "delete_webhook": ("POST", "/webhooks/1/delete", {WEBHOOKS}, ADMINISTRATOR),
    "pause_webhook": ("POST", "/webhooks/1/pause", {WEBHOOKS}, OPERATOR),
    "resume_webhook": ("POST", "/webhooks/1/resume", {WEBHOOKS}, OPERATOR),
    "move_webhook": ("POST", "/webhooks/1/move", {WEBHOOKS}, OPERATOR),
    "test_webhook": ("POST", "/webhooks/1/test", {WEBHOOKS}, OPERATOR),
    "send": ("POST", "/messages", {SEND}, OPERATOR),
}

_LOOKS = (
    "ages", "list_at", "outcomes", "size_at",
    "certificates", "destinations", "disks", "explain", "headers", "history", "list", "log", "parameters", "ping",
    "positions", "processes", "resolve", "routes", "search", "service_times", "settings", "settings_history", "show", "size",
    "state", "transports", "working",
)  # fmt: skip
_OF_QUEUE = (
    "add_recipients", "bounce", "change_matching", "delay", "delete", "hold", "release", "reroute", "retry", "undelete",
)  # fmt: skip
_OF_TUNING = ("check_changes", "resume", "set", "simulate", "suspend", "transport_set")
# The operations of the control socket, for `waypost --remote`.
CONTROL: dict[str, tuple[Scope, Role]] = {
    **dict.fromkeys(_LOOKS, (READ, VIEWER)),
    **dict.fromkeys(("events", "kept", "kept_text", "kept_use", "users"), (READ, VIEWER)),
    **dict.fromkeys(_OF_QUEUE, (QUEUE, OPERATOR)),
    **dict.fromkeys(_OF_TUNING, (TUNE, OPERATOR)),
    "data": (BODY, VIEWER),
    **dict.fromkeys(("kept_make", "kept_put", "kept_remove"), (SETTINGS, ADMINISTRATOR)),
    **dict.fromkeys(("user_put", "user_remove"), (USERS, ADMINISTRATOR)),
    "settings_change": (SETTINGS, ADMINISTRATOR),
    "settings_effects": (SETTINGS, ADMINISTRATOR),
    "settings_return": (SETTINGS, ADMINISTRATOR),
    "inject": (SEND, OPERATOR),
}
TABLE |= {f"control_{name}": ("POST", f"/control/{name}", {scope}, least) for name, (scope, least) in CONTROL.items()}
