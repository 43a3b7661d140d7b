"""Takes the users, tokens and audit log of a portal's SQLite database into the one that the portal has now, of all nodes.

Laws
- All is taken in one transaction, once for each node: a kill leaves nothing, and a second time is refused.
- A user whom the database has already stays as it is, and gets no token: the same name may be another person.
- No user gets in with less than before: one whose second factor cannot be read with this key is disabled.
- Entries of the audit log get the node's name, and numbers by their time: pages find entries by numbers that grow with it.
  All numbers are new ones, so that one of before names no other entry. No portal enters anything meanwhile; an action that is
  under way finds its entry again (``Entry.end``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.contrib.auth.models import Group, User
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Model

from appliance.accounts.first_steps import give_password
from appliance.accounts.models import GivenPassword
from appliance.api.models import ApiToken
from appliance.audit.models import Entry
from appliance.audit.record import record
from appliance.common.node import own_node
from appliance.common.nodes_database import MOVED_IN
from mailcore.counted import counted

__all__ = ["MovedIn", "NotMovedIn", "move_in"]

OLD = "moving_in"  # alias of the connection to the old database
PIECE = 1_000
ENCRYPTED = frozenset(("secret", "seed"))  # of TOTP, of recovery codes
_RENUMBER = (
    "UPDATE audit_entry SET id = %s + ordered.number FROM (SELECT id AS was, row_number() OVER (ORDER BY at, id) AS number "
    "FROM audit_entry) AS ordered WHERE audit_entry.id = ordered.was"
)


class NotMovedIn(Exception):
    """Says why nothing was taken."""


@dataclass
class MovedIn:
    """Counts what was taken. ``known``: names of users who were there, and whose tokens were left; ``disabled``: of those
    whose second factor cannot be read."""

    users: int = 0
    tokens: int = 0
    entries: int = 0
    known: list[str] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)


def move_in(path: Path) -> MovedIn:
    """Takes what an SQLite database has; returns how much. Raises NotMovedIn, DatabaseError."""
    if Entry.objects.filter(action=MOVED_IN, node=own_node()).exists():
        raise NotMovedIn(f"the database of node {own_node() or 'without a name'} was taken in before")
    if not path.is_file():
        raise NotMovedIn(f"{path}: there is no such file")
    settings = connection.settings_dict | {"OPTIONS": {}, "HOST": "", "PORT": "", "USER": "", "PASSWORD": ""}
    connections.databases[OLD] = settings | {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    try:
        executor = MigrationExecutor(connections[OLD])
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise NotMovedIn(f"{path} is of an earlier release; start the portal of this one with it once")
        with transaction.atomic():
            moved = _take()
            record(
                None,
                MOVED_IN,
                str(path),
                who="manage.py move_in",
                words=f"{counted(moved.users, 'user')}, {counted(moved.tokens, 'token')}",
            )
        return moved
    finally:
        connections[OLD].close()
        del connections[OLD]
        del connections.databases[OLD]


def _take() -> MovedIn:
    moved = MovedIn()
    there = set(User.objects.values_list("username", flat=True))
    users: dict[int, User] = {}  # by the number in the old database
    for old in User.objects.using(OLD).prefetch_related("groups").order_by("pk"):
        if old.username in there:
            moved.known.append(old.username)
            continue
        names = [group.name for group in old.groups.all()]
        new = User(**{name: value for name, value in _columns(old) if name != "id"})
        new.save(using=connection.alias)
        new.groups.set(Group.objects.filter(name__in=names))
        users[old.pk] = new
        moved.users += 1
        if not _take_factors(old, new):
            User.objects.filter(pk=new.pk).update(is_active=False)
            moved.disabled.append(new.username)
        if GivenPassword.objects.using(OLD).filter(user_id=old.pk).exists():
            give_password(new)
    for token in ApiToken.objects.using(OLD).filter(user_id__in=users).order_by("pk"):
        columns = {name: value for name, value in _columns(token) if name not in ("id", "user_id")}
        ApiToken(user=users[token.user_id], **columns).save(using=connection.alias)
        moved.tokens += 1
    pieces: list[Entry] = []
    for entry in Entry.objects.using(OLD).order_by("pk").iterator(PIECE):
        columns = {name: value for name, value in _columns(entry) if name not in ("id", "user_id", "node")}
        pieces.append(Entry(node=entry.node or own_node(), user=users.get(entry.user_id or 0), **columns))
        moved.entries += 1
        if len(pieces) == PIECE:
            _insert(pieces)
    _insert(pieces)
    _renumber()
    return moved


def _renumber() -> None:
    """Gives all entries numbers by their time, behind the highest that any has had."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # SQLite has one writer at a time
            # Waits for those who have entered something and not committed it; who wants to enter something waits for this.
            cursor.execute("LOCK TABLE audit_entry IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute("SELECT coalesce(max(id), 0) FROM audit_entry")
        (highest,) = cursor.fetchone()
        if connection.vendor == "postgresql":
            cursor.execute("SELECT nextval(pg_get_serial_sequence('audit_entry', 'id'))")
            highest = max(highest, *cursor.fetchone())
        cursor.execute(_RENUMBER, [highest])
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence('audit_entry', 'id'), (SELECT max(id) FROM audit_entry)) "
                "WHERE EXISTS (SELECT FROM audit_entry)"
            )


def _take_factors(old: User, new: User) -> bool:
    """Takes the second factors of a user; returns False, and takes none, if one is encrypted with another key."""
    factors = list(Authenticator.objects.using(OLD).filter(user_id=old.pk))
    try:
        for each in factors:
            for name in ENCRYPTED & each.data.keys():
                get_adapter().decrypt(each.data[name])
    except InvalidToken:
        return False
    for each in factors:
        columns = {name: value for name, value in _columns(each) if name not in ("id", "user_id")}
        Authenticator(user=new, **columns).save(using=connection.alias)
    return True


def _insert(entries: list[Entry]) -> None:
    """Stores entries with their own times, and not with that of now."""
    times = [entry.at for entry in entries]
    at = Entry._meta.get_field("at")
    was, at.auto_now_add = at.auto_now_add, False
    try:
        for entry, time in zip(entries, times, strict=True):
            entry.at = time
        Entry.objects.bulk_create(entries)
    finally:
        at.auto_now_add = was
    entries.clear()


def _columns(row: Model) -> Iterator[tuple[str, Any]]:
    for column in row._meta.concrete_fields:
        yield column.attname, getattr(row, column.attname)
