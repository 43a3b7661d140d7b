"""Who may ask what of which page: the table behind test_access.py. A new page needs its line here.

Each line: the page's name (or its route, when it has none), the least role for GET, the least role for POST. NEVER: the
method is refused to everybody (405). OPEN: nobody needs to be signed in. SIGNED_IN: a role is not needed.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["TABLE", "Least"]


class Least(IntEnum):
    OPEN = -1
    SIGNED_IN = 0
    VIEWER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3
    NEVER = 4


OPEN, SIGNED_IN, VIEWER, OPERATOR, ADMINISTRATOR, NEVER = Least

TABLE: dict[str, tuple[Least, Least]] = {
    "status:overview": (VIEWER, NEVER),
    "status:overview_stream": (VIEWER, NEVER),
    "live:stream": (VIEWER, NEVER),
    "live:numbers": (VIEWER, NEVER),
    "live:history": (VIEWER, NEVER),
    "queue:list": (VIEWER, NEVER),
    "queue:rows": (VIEWER, NEVER),
    "queue:names": (VIEWER, NEVER),
    "queue:csv": (VIEWER, NEVER),
    "queue:ages": (VIEWER, NEVER),
    "queue:search": (VIEWER, NEVER),
    "queue:found": (VIEWER, NEVER),
    "queue:chosen": (OPERATOR, OPERATOR),
    "queue:changes": (VIEWER, NEVER),
    "queue:count": (NEVER, OPERATOR),
    "queue:change": (VIEWER, NEVER),
    "queue:go": (NEVER, OPERATOR),
    "queue:stop": (NEVER, OPERATOR),
    "queue:undo": (NEVER, OPERATOR),
    "queue:message": (VIEWER, NEVER),
    "queue:recipients": (VIEWER, NEVER),
    "queue:waiting": (VIEWER, NEVER),
    "queue:body": (ADMINISTRATOR, NEVER),
    "queue:raw": (ADMINISTRATOR, NEVER),
    "queue:eml": (ADMINISTRATOR, NEVER),
    "destinations:list": (VIEWER, NEVER),
    "destinations:list_stream": (VIEWER, NEVER),
    "destinations:one_stream": (VIEWER, NEVER),
    "destinations:suspend": (OPERATOR, OPERATOR),
    "destinations:resume": (OPERATOR, OPERATOR),
    "destinations:set": (OPERATOR, OPERATOR),
    "destinations:take_back": (OPERATOR, OPERATOR),
    "destinations:one": (VIEWER, NEVER),
    "tuning:parameters": (VIEWER, NEVER),
    "tuning:diff": (NEVER, OPERATOR),
    "tuning:apply": (NEVER, OPERATOR),
    "tuning:what_if": (NEVER, OPERATOR),
    "tuning:prediction": (VIEWER, NEVER),
    "tuning:history": (VIEWER, NEVER),
    "tuning:batch": (VIEWER, NEVER),
    "tuning:windows": (VIEWER, NEVER),
    "tuning:return_batch": (OPERATOR, NEVER),
    "tuning:return_change": (OPERATOR, NEVER),
    "maillog:lines": (VIEWER, NEVER),
    "maillog:newer": (VIEWER, NEVER),
    "managed:settings": (VIEWER, NEVER),
    "managed:check": (NEVER, ADMINISTRATOR),
    "managed:apply": (NEVER, ADMINISTRATOR),
    "managed:history": (VIEWER, NEVER),
    "managed:export": (VIEWER, NEVER),
    "positions:positions": (VIEWER, NEVER),
    "routes:routes": (VIEWER, NEVER),
    "routes:resolve": (VIEWER, NEVER),
    "alerts:alerts": (VIEWER, NEVER),
    "alerts:test": (NEVER, OPERATOR),
    "alerts:rule": (VIEWER, NEVER),
    "alerts:silence_rule": (NEVER, OPERATOR),
    "alerts:end_silence": (NEVER, OPERATOR),
    "alerts:alert": (VIEWER, NEVER),
    "alerts:acknowledge": (NEVER, OPERATOR),
    "alerts:silence_alert": (NEVER, OPERATOR),
    "reports:reports": (VIEWER, NEVER),
    "reports:run_now": (NEVER, OPERATOR),
    "reports:run": (VIEWER, NEVER),
    "reports:stop": (NEVER, OPERATOR),
    "reports:report": (VIEWER, NEVER),
    "reports:csv": (VIEWER, NEVER),
    "reports:parquet": (VIEWER, NEVER),
    "reports:preferences": (ADMINISTRATOR, ADMINISTRATOR),
    "reports:schedules": (VIEWER, NEVER),
    "reports:schedule": (ADMINISTRATOR, ADMINISTRATOR),
    "audit:entries": (OPERATOR, NEVER),
    "audit:csv": (OPERATOR, NEVER),
    "audit:entry": (OPERATOR, NEVER),
    "account_login": (OPEN, OPEN),
    "account_inactive": (OPEN, NEVER),
    "account_change_password": (SIGNED_IN, SIGNED_IN),
    "account_reauthenticate": (SIGNED_IN, SIGNED_IN),
    "mfa_index": (SIGNED_IN, NEVER),
    "mfa_authenticate": (OPEN, OPEN),
    "mfa_reauthenticate": (SIGNED_IN, SIGNED_IN),
    "mfa_activate_totp": (SIGNED_IN, SIGNED_IN),
    "mfa_deactivate_totp": (SIGNED_IN, SIGNED_IN),
    "mfa_view_recovery_codes": (SIGNED_IN, NEVER),
    "mfa_generate_recovery_codes": (SIGNED_IN, SIGNED_IN),
    "admin:index": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:login": (OPEN, OPEN),
    "admin:auth_user_password": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_remove_totp": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_changelist": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_add": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_history": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_delete": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_user_change": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_group_changelist": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_group_history": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:auth_group_change": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:axes_accessattempt_changelist": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:axes_accessattempt_history": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:axes_accessattempt_delete": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:axes_accessattempt_change": (ADMINISTRATOR, NEVER),
    "admin:audit_entry_changelist": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:audit_entry_history": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:audit_entry_change": (ADMINISTRATOR, NEVER),
    "admin:django_celery_beat_periodictask_changelist": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:django_celery_beat_periodictask_history": (ADMINISTRATOR, ADMINISTRATOR),
    "admin:django_celery_beat_periodictask_change": (ADMINISTRATOR, ADMINISTRATOR),
    "account_logout": (OPEN, OPEN),
}
