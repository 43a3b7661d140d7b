"""One connection to the member of the database's cluster that takes writes. It is used by one thread.

- law: never-cancel. No cancel is ever sent. A time-out, a signal or any other exception closes the socket.

A cancelled wait for the standby returns like a commit, with a warning only. psycopg's own connection cancels a statement
when a signal comes (``Connection.wait``), so this one speaks through libpq, as ``psycopg.pq`` offers it.

An answer is complete only with the server's "ready for query": the server reports the command before it commits, and the
warning about a wait that was cut short follows after that report (docs/facts.md).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from mailcore.replication.faults import Lost, NotReached, ServerError
from mailcore.replication.parameters import Host, StoreParameters
from mailcore.replication.statements import Statement

__all__ = ["Answer", "Connection", "Notice", "Row"]

Row = tuple[bytes | None, ...]

# The server finds a peer that is gone within ten seconds; a socket that is closed on a host that still runs is found at once.
_TCP = {
    "keepalives": "1",
    "keepalives_idle": "4",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",  # ms
}
# The server's settings on which the laws rest, for each connection; ``guarantees`` reads them back. A warning that is not sent
# would turn a cancelled wait into a commit. A statement that waits for a lock ends when its client is gone.
SESSION = {
    "synchronous_commit": "on",
    "client_min_messages": "notice",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "10s",
    "client_connection_check_interval": "5s",
    "jit": "off",
    "enable_seqscan": "off",  # a plan that was made while a table was small would read the whole table later
    "application_name": "waypost",
}
# The server finds in the same time that we are gone. A Unix socket shows zeros.
_TCP_OF_SERVER = {"tcp_keepalives_idle": 4, "tcp_keepalives_interval": 2, "tcp_keepalives_count": 3}
_SET = ";".join(f"set {name} = '{value}'" for name, value in [*SESSION.items(), *_TCP_OF_SERVER.items()])
_READ = select.POLLIN
LOOK_EVERY_S = 0.5  # at the clock, which may be another one than the kernel's


@dataclass(frozen=True)
class Notice:
    """A notice or a warning of the server."""

    severity: str
    sqlstate: str
    message: str


@dataclass
class Answer:
    """Rows of one statement, in binary form, and the notices that came with them."""

    rows: list[Row] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


class Connection:
    """A connection that takes writes. ``clock`` counts seconds monotonically."""

    def __init__(self, pgconn: pq.abc.PGconn, host: Host, clock: Callable[[], float]) -> None:
        self._pgconn = pgconn
        self.host = host
        self._clock = clock
        self._prepared: set[str] = set()
        self._notices: list[Notice] = []
        self._poll = select.poll()
        pgconn.notice_handler = self._notice

    @classmethod
    def open(cls, parameters: StoreParameters, clock: Callable[[], float] = time.monotonic) -> Connection:
        """Connects to the first member that takes writes, and sets the session up.

        Raises NotReached, with the reason of each host.
        """
        reasons = []
        for host in parameters.hosts:
            try:
                return cls._open(host, parameters, clock)
            except (NotReached, Lost, ServerError) as error:
                reasons.append(f"{host}: {error}")
        raise NotReached(f"no server of the database takes writes: {'; '.join(reasons)}")

    @classmethod
    def _open(cls, host: Host, parameters: StoreParameters, clock: Callable[[], float]) -> Connection:
        deadline = clock() + parameters.connect_timeout_s
        words = make_conninfo(
            host=host.address,
            port=host.port,
            dbname=parameters.database,
            user=parameters.user,
            password=parameters.password or None,
            sslmode=parameters.tls_mode,
            sslrootcert=parameters.tls_root or None,
            target_session_attrs="read-write",
            client_encoding="UTF8",
            **_TCP,
        )
        pgconn = pq.PGconn.connect_start(words.encode())
        try:
            while True:
                if pgconn.status == pq.ConnStatus.BAD:
                    raise NotReached(_reason(pgconn))
                state = pgconn.connect_poll()
                if state == pq.PollingStatus.OK:
                    break
                if state == pq.PollingStatus.FAILED:
                    raise NotReached(_reason(pgconn))
                poll = select.poll()
                poll.register(pgconn.socket, _READ if state == pq.PollingStatus.READING else select.POLLOUT)
                left_s = deadline - clock()
                if left_s <= 0 or not poll.poll(left_s * 1000):
                    raise NotReached(f"no answer within {parameters.connect_timeout_s:g} s")
            pgconn.nonblocking = 1
            connection = cls(pgconn, host, clock)
            connection.run(_SET, max(0.1, deadline - clock()))
            return connection
        except BaseException:
            pgconn.finish()
            raise

    @property
    def backend_pid(self) -> int:
        """Returns the process id that the peer gave for cancelling. A pooler gives one of its own."""
        return self._pgconn.backend_pid

    @property
    def closed(self) -> bool:
        """Returns True if the socket is closed."""
        return self._pgconn.status != pq.ConnStatus.OK

    def close(self) -> None:
        """Closes the socket. The server may still complete what is under way."""
        self._pgconn.finish()

    def run(self, sql: str, timeout_s: float) -> list[Answer]:
        """Runs statements as text, all in one transaction unless they say otherwise; their values come as text.

        Raises ServerError, Lost.
        """
        return self._answers(lambda: self._pgconn.send_query(sql.encode()), timeout_s)

    def execute(self, statement: Statement, values: Sequence[object], timeout_s: float) -> Answer:
        """Runs a prepared statement with binary parameters. Raises ServerError, Lost."""
        name = statement.name.encode()
        if statement.name not in self._prepared:
            self._answers(lambda: self._pgconn.send_prepare(name, statement.sql.encode(), statement.types), timeout_s)
            self._prepared.add(statement.name)
        encoded = [encode(value) for encode, value in zip(statement.encoders, values, strict=True)]
        formats = [1] * len(encoded)
        answers = self._answers(lambda: self._pgconn.send_query_prepared(name, encoded, formats, 1), timeout_s)
        assert len(answers) == 1, f"{len(answers)} answers to one statement"
        return answers[0]

    def _answers(self, send: Callable[[], None], timeout_s: float) -> list[Answer]:
        """Sends, and reads up to "ready for query". Any failure closes the socket (law: never-cancel)."""
        if self.closed:
            raise Lost(f"{self.host}: the connection is closed")
        try:
            return self._exchange(send, self._clock() + timeout_s)
        except ServerError:
            raise
        except psycopg.Error as error:  # of libpq: the socket is closed or fails
            raise self._lost(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _exchange(self, send: Callable[[], None], deadline: float) -> list[Answer]:
        pgconn = self._pgconn
        self._notices = []
        send()
        while pgconn.flush():
            if self._wait(_READ | select.POLLOUT, deadline) & _READ:
                pgconn.consume_input()
        answers: list[Answer] = []
        error: ServerError | None = None
        while True:
            while pgconn.is_busy():
                self._wait(_READ, deadline)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            try:
                if result.status == pq.ExecStatus.TUPLES_OK:
                    rows = [
                        tuple(result.get_value(row, column) for column in range(result.nfields))
                        for row in range(result.ntuples)
                    ]
                    answers.append(Answer(rows))
                elif result.status == pq.ExecStatus.COMMAND_OK:
                    answers.append(Answer())
                else:
                    error = error or self._error(result)
            finally:
                result.clear()
        if pgconn.status != pq.ConnStatus.OK:
            raise self._lost(_reason(pgconn))
        if error is not None:
            raise error
        if answers:
            answers[-1].notices = self._notices
        return answers

    def _error(self, result: pq.abc.PGresult) -> ServerError:
        """Returns the error, if it says that the transaction was rolled back. Raises Lost for an end of the session."""
        severity = _field(result, pq.DiagnosticField.SEVERITY_NONLOCALIZED)
        message = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or _reason(self._pgconn)
        if severity != "ERROR":  # the session ends, perhaps behind a commit; libpq's own errors have no severity
            raise self._lost(message)
        return ServerError(message, _field(result, pq.DiagnosticField.SQLSTATE))

    def _wait(self, events: int, deadline: float) -> int:
        """Waits for the socket. Raises Lost when the time is over."""
        self._poll.register(self._pgconn.socket, events)
        while (left_s := deadline - self._clock()) > 0:
            if ready := self._poll.poll(min(left_s, LOOK_EVERY_S) * 1000):
                return ready[0][1]
        raise self._lost("no answer in time")

    def _lost(self, reason: str) -> Lost:
        self.close()
        return Lost(f"{self.host}: {reason}")

    def _notice(self, result: pq.abc.PGresult) -> None:
        fields = pq.DiagnosticField
        self._notices.append(
            Notice(
                _field(result, fields.SEVERITY_NONLOCALIZED),
                _field(result, fields.SQLSTATE),
                _field(result, fields.MESSAGE_PRIMARY),
            )
        )


def _field(result: pq.abc.PGresult, field_: pq.DiagnosticField) -> str:
    return (result.error_field(field_) or b"").decode("utf-8", "replace")


def _reason(pgconn: pq.abc.PGconn) -> str:
    return " ".join(pgconn.get_error_message().split()) or "the connection is closed"
