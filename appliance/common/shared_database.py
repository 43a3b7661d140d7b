"""Lets the portals of several nodes share a database: one changes its tables at a time, all sign with one key, and rows of
before have the name of a node.

Law: a portal whose key is another one than that of the other nodes does not start: it would end their sessions, could not read
second factors, and would sign webhooks with other secrets.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet

from appliance.accounts.models import PortalKey
from appliance.alerts.models import Alert, Lead, Notice, RuleCheck, Watch
from appliance.common.node import own_node
from appliance.common.nodes_database import SCHEMA_OF
from appliance.common.secret import key_digest
from appliance.live.models import LastSnapshot, Sample
from appliance.queue.models import Change
from appliance.reports.models import Run, Started

__all__ = [
    "WEBHOOKS", "OtherKey", "Waits", "check_key", "claim_rows", "key_fault", "one_at_a_time", "schema_fault", "take_turn",
]  # fmt: skip

LOCK = 0x7761_7970  # "wayp": an advisory lock of PostgreSQL
WEBHOOKS = 0x7761_7977  # "wayw": another, of the process that sends events to webhooks for all nodes
TURN_S = 1.0
ABLE_S = 15.0  # a core may be started again within it
TRY_S = 0.25
SAID_AFTER_S, SAID_EACH_S = 3.0, 60.0  # a portal makes no changes of tables at most starts, and these are over sooner
# A machine that is gone without a word: the server ends its session after 10 + 3 * 5 seconds, and another has the turn.
KEEPALIVE = "SET tcp_keepalives_idle = 10", "SET tcp_keepalives_interval = 5", "SET tcp_keepalives_count = 3"
# A process that is stopped (SIGSTOP) keeps its connection: the server ends a session that is idle for ABLE_S.
IDLE = f"SET idle_session_timeout = '{ABLE_S:.0f}s'"
_log = logging.getLogger("waypost.portal")


class OtherKey(Exception):
    """Says that the portals of other nodes sign with another key; its message is for the operator."""


class Waits:
    """Logs for what a process waits and why: one line for each reason that follows another, and one at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._kind = ""

    def say(self, kind: str, why: str) -> None:
        """Logs why, unless the last reason was of this kind, too."""
        if kind != self._kind:
            self._kind = kind
            _log.warning("waits for %s: %s", self._what, why)

    def end(self) -> None:
        """Logs that it waits no longer, if it did."""
        if self._kind:
            self._kind = ""
            _log.warning("waits no longer for %s", self._what)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Waits until no other portal changes the tables, and says for whom. A lock of the session: the database ends it with the
    process, or soon after its machine is gone."""
    if connection.vendor != "postgresql":  # SQLite has one writer at a time, and its portals have one home
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")  # others may take long, and so may a change of a large table
        for statement in KEEPALIVE:
            cursor.execute(statement)
        _wait_for_tables(cursor)
    try:
        yield
    finally:
        with contextlib.suppress(Exception), connection.cursor() as cursor:  # a session that was lost has let it go
            cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
            cursor.execute("RESET statement_timeout")


def _wait_for_tables(cursor: CursorWrapper) -> None:
    began = time.monotonic()
    said_at = began + SAID_AFTER_S - SAID_EACH_S
    while True:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
        if cursor.fetchone()[0]:
            return
        now = time.monotonic()
        if now - said_at >= SAID_EACH_S:
            said_at = now
            _log.warning(
                "waits for %s, which changes the tables of the database or has stopped in the middle: one portal does at a "
                "time. It has waited for %d s",
                _holder(cursor, LOCK),
                now - began,
            )
        time.sleep(TRY_S)


def _holder(cursor: CursorWrapper, lock: int) -> str:
    """Returns who has a lock, for people: the name of the session, which is that of the portal, and its address."""
    cursor.execute(
        "SELECT application_name, host(client_addr), pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted AND "
        "locktype = 'advisory' AND classid = 0 AND objid::bigint = %s AND objsubid = 1 AND pg_locks.database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())",
        [lock],
    )
    if (row := cursor.fetchone()) is None:
        return "another portal"
    name, address, backend = row
    return f"{name or 'another portal'}{f' at {address}' if address else ''} (process {backend} of the database)"


def take_turn(lock: int, is_able: Callable[[], bool]) -> None:
    """Waits until this process is the only one of all nodes that share the database. It begins again, with its first line, when
    it is that no more, or when it has not been able to work for ABLE_S, also because it was stopped, so that another node has
    the turn. It logs why it waits.

    The lock is of a session of its own, and ends with it. Without [nodes] there are no others.
    """
    if not own_node() or connection.vendor != "postgresql":
        return
    taken = threading.Event()
    threading.Thread(target=_keep_turn, args=(lock, is_able, taken), daemon=True, name="turn").start()
    taken.wait()


def _keep_turn(lock: int, is_able: Callable[[], bool], taken: threading.Event) -> None:
    session = connections[DEFAULT_DB_ALIAS].copy()
    waits = Waits("its turn")
    while not taken.is_set():
        try:
            if not is_able():
                waits.say("core", "the core of this node does not answer")
            else:
                with session.cursor() as cursor:
                    for statement in (*KEEPALIVE, IDLE):
                        cursor.execute(statement)
                    cursor.execute("SELECT pg_try_advisory_lock(%s), pg_backend_pid()", [lock])
                    is_ours, backend = cursor.fetchone()
                    if not is_ours:
                        waits.say("other", f"one process of all nodes works at a time, now {_holder(cursor, lock)}")
                if is_ours:
                    waits.end()
                    taken.set()
        except Error as error:
            waits.say("database", f"the database cannot be used: {' '.join(str(error).split())}")
            session.close()
        time.sleep(TURN_S)
    able_at = time.monotonic()
    try:
        while time.monotonic() - able_at < ABLE_S:
            if is_able():
                able_at = time.monotonic()
            with session.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                (now,) = cursor.fetchone()
            if now != backend:
                break
            time.sleep(TURN_S)
    except Error as error:
        _log.warning("the session of the lock is gone: %s", error)
    finally:  # another may have the turn by now, and this process is in the middle of something
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself


def schema_fault() -> str:
    """Returns why the tables have no place, for an administrator of the database; "" if they have one."""
    if connection.vendor != "postgresql":
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        (schema,) = cursor.fetchone()
    return "" if schema is not None else SCHEMA_OF


def key_fault() -> str:
    """Returns why this portal must not use the key that it has, for an operator; "" if it may."""
    digest = _digest()
    others = PortalKey.objects.exclude(node=own_node()).exclude(digest=digest)
    nodes = ", ".join(sorted(others.values_list("node", flat=True)))
    if not nodes:
        return ""
    return (
        f"the portal of node {own_node() or 'without a name'} has another key than the portals that share its database "
        f"({nodes or 'without a name'}). Copy portal/secret.key of the home there to this one, or give all the same "
        "WAYPOST_SECRET_KEY. If this key is the right one, for all: manage.py portal_key --accept"
    )


def check_key(*, accept: bool = False) -> None:
    """Notes with which key this node signs. ``accept``: others that differ are forgotten. Raises OtherKey."""
    if accept:
        PortalKey.objects.exclude(digest=_digest()).delete()
    if fault := key_fault():
        raise OtherKey(fault)
    PortalKey.objects.update_or_create(node=own_node(), defaults={"digest": _digest()})


def _digest() -> str:
    return key_digest(settings.SECRET_KEY)


def claim_rows() -> None:
    """Gives the rows that have no node, of a time before [nodes] or of an earlier release, the name of this one."""
    node = own_node()
    if not node:
        return
    with transaction.atomic():
        _make_room(Sample.everywhere.all(), "minute")
        _make_room(Alert.objects.filter(ended_at__isnull=True), "cause")
        for one_row in (Watch.everywhere.all(), LastSnapshot.everywhere.all()):
            if one_row.filter(node=node).exists():
                one_row.filter(node="").delete()
        RuleCheck.everywhere.filter(node="").delete()  # made again within seconds
        Lead.objects.filter(node="").delete()
        Started.everywhere.filter(node="").delete()
        PortalKey.objects.filter(node="").delete()
        for rows in (
            Sample.everywhere, Alert.objects, Notice.objects, Watch.everywhere, LastSnapshot.everywhere, Run.everywhere,
            Change.objects,
        ):  # fmt: skip
            rows.filter(node="").update(node=node)


def _make_room(rows: QuerySet[Model], name: str) -> None:
    """Deletes the rows without a node of which this node has one of its own."""
    own = rows.filter(node=own_node()).values(name)
    rows.filter(node="", **{f"{name}__in": own}).delete()
