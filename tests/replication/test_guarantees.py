"""What a database must keep, and the sentence that mends one that does not: real servers with each setting wrong."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mailcore.faults import Code
from mailcore.replication.connection import Connection
from mailcore.replication.faults import NotReached, StoreRefused
from mailcore.replication.guarantees import Findings, look, open_checked
from mailcore.replication.parameters import Host, StoreParameters
from mailcore.replication.patroni import PatroniUnread, judge_config, read_config
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.made_certificates import Authority
from tests.replication.cluster import Cluster, Template, programs

GOOD = {"synchronous_mode": True, "synchronous_mode_strict": True, "ttl": 20}


def found_by(cluster: Cluster, **more: object) -> Findings:
    connection = cluster.connect(**more)
    try:
        return look(connection, cluster.parameters(**more))
    finally:
        connection.close()


def test_a_database_that_keeps_what_it_is_given_has_no_fault(cluster: Cluster) -> None:
    findings = found_by(cluster)
    assert (findings.faults, findings.waits, findings.standbys) == ([], [], 1)
    assert findings.system == int(cluster.primary.sql("select system_identifier from pg_control_system()")[0][0])
    assert [words.split(";")[0] for words in findings.unseen] == [
        "Whether Patroni's synchronous_mode_strict is on cannot be seen through SQL"
    ]


def test_no_synchronous_standby_is_refused(cluster: Cluster) -> None:
    cluster.primary.settle("synchronous_standby_names = ''")
    try:
        with pytest.raises(StoreRefused, match=r"has no synchronous standby .*synchronous_mode_strict=true") as error:
            open_checked(cluster.parameters())
        assert (error.value.code, error.value.argument) == (Code.INVALID, "synchronous_standby_names")
    finally:
        cluster.primary.settle("synchronous_standby_names = '*'")


def test_a_standby_that_is_away_lets_commits_wait_and_is_not_refused(own_cluster: Cluster) -> None:
    """What strict Patroni shows when the last standby goes. A node that starts then waits, too."""
    own_cluster.standby.kill()
    eventually_blocking(lambda: not found_by(own_cluster).standbys, "the primary has noticed")
    findings = found_by(own_cluster)
    assert findings.faults == []
    assert [(fault.code, fault.argument) for fault in findings.waits] == [(Code.UNAVAILABLE, "pg_stat_replication")]


def test_what_a_role_may_not_see_is_said(cluster: Cluster) -> None:
    cluster.primary.sql("revoke pg_read_all_stats from waypost")
    try:
        findings = found_by(cluster)
        assert (findings.standbys, findings.waits, findings.faults) == (None, [], [])
        assert "GRANT pg_monitor TO waypost" in findings.unseen[0]
    finally:
        cluster.primary.sql("grant pg_read_all_stats to waypost")


def test_another_isolation_of_the_role_is_refused(cluster: Cluster) -> None:
    cluster.primary.sql("alter role waypost set default_transaction_isolation = 'repeatable read'")
    try:
        (fault,) = found_by(cluster).faults
        assert fault.argument == "default_transaction_isolation"
        assert "ALTER ROLE waypost SET default_transaction_isolation = 'read committed'" in fault.message
    finally:
        cluster.primary.sql("alter role waypost reset default_transaction_isolation")


@pytest.mark.parametrize(
    ("name", "value"), [("synchronous_commit", "local"), ("client_min_messages", "error"), ("statement_timeout", "7s")]
)
def test_a_session_that_does_not_have_our_settings_is_refused(cluster: Cluster, name: str, value: str) -> None:
    connection = cluster.connect()
    connection.run(f"set {name} = '{value}'", PATIENCE_S)
    (fault,) = look(connection, cluster.parameters()).faults
    assert (fault.code, fault.argument) == (Code.INVALID, name)
    assert "pool_mode = session" in fault.message
    connection.close()


def test_a_setting_that_loses_mail_is_refused_with_its_remedy(template: Template) -> None:
    with template.copy("careless", standby=False) as careless:
        careless.primary.stop()
        subprocess.run(
            [programs() / "pg_checksums", "--disable", "--no-sync", "-D", careless.primary.data],
            check=True, capture_output=True, user=careless.primary.directory.owner(), cwd=careless.directory,
        )  # fmt: skip
        with (careless.primary.data / "postgresql.conf").open("a") as file:
            file.write("fsync = off\nfull_page_writes = off\n")
        careless.primary.start()
        faults = found_by(careless).faults
        assert [fault.argument for fault in faults] == ["fsync", "full_page_writes", "data_checksums"]
        for fault, remedy in zip(faults, ("fsync = on", "full_page_writes = on", "pg_checksums --enable"), strict=True):
            assert remedy in fault.message


# -- Poolers


@contextmanager
def pooled(cluster: Cluster, mode: str) -> Iterator[StoreParameters]:
    """Parameters that lead through a real pgbouncer."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    directory = cluster.directory / mode
    directory.mkdir()
    shutil.chown(directory, cluster.primary.directory.owner())
    (directory / "users").write_text('"waypost" ""\n')
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\nwaypost = host={cluster.primary.directory} port=5432\n"
        f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {directory}\nlisten_port = 6432\nauth_type = trust\n"
        f"pool_mode = {mode}\nauth_file = {directory}/users\nlogfile = {directory}/log\npidfile = {directory}/pid\n"
        "default_pool_size = 5\nignore_startup_parameters = extra_float_digits\n"
    )
    for file in directory.iterdir():
        shutil.chown(file, cluster.primary.directory.owner())
    process = subprocess.Popen([program, "-q", directory / "pgbouncer.ini"], user=cluster.primary.directory.owner())
    try:
        parameters = replace(cluster.parameters(), hosts=(Host(str(directory), 6432),))

        def answers() -> bool:
            try:
                Connection.open(parameters).close()
            except NotReached:
                return False
            return True

        eventually_blocking(answers, (directory / "log").read_text)
        yield parameters
    finally:
        process.kill()
        process.wait()


def test_a_pooler_that_lends_a_server_for_a_transaction_is_refused(cluster: Cluster) -> None:
    with pooled(cluster, "transaction") as parameters:
        with pytest.raises(StoreRefused) as error:
            open_checked(parameters)
        assert "transaction_pooling" in [fault.argument for fault in error.value.faults]
        assert "pool_mode = session" in error.value.faults[-1].message


def test_a_pooler_that_lends_a_server_for_a_session_is_not(cluster: Cluster) -> None:
    with pooled(cluster, "session") as parameters:
        connection, findings = open_checked(parameters)
        assert findings.faults == []
        connection.close()


# -- Patroni, whose answers are a fake server's


@contextmanager
def patroni(status: int, body: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/config" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http{'s' if context else ''}://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_patroni_that_is_strict_leaves_nothing_unseen(cluster: Cluster) -> None:
    with patroni(200, json.dumps(GOOD).encode()) as address:
        findings = found_by(cluster, patroni=("http://127.0.0.1:1", address))
    assert (findings.faults, findings.unseen) == ([], [])


@pytest.mark.parametrize(
    "change", [lambda c: c.pop("synchronous_mode_strict"), lambda c: c.update(synchronous_mode=False)]
)
def test_patroni_that_is_not_strict_is_refused(cluster: Cluster, change: Callable[[dict[str, object]], object]) -> None:
    config: dict[str, object] = dict(GOOD)
    change(config)
    with patroni(200, json.dumps(config).encode()) as address:
        (fault,) = found_by(cluster, patroni=(address,)).faults
    assert fault.code is Code.INVALID
    assert f"patronictl edit-config --set {fault.argument}=true" in fault.message


def test_patroni_that_does_not_answer_is_not_taken_for_strict(cluster: Cluster) -> None:
    with patroni(503, b"") as address:
        findings = found_by(cluster, patroni=(address,))
    assert findings.faults == []
    assert "status 503" in findings.unseen[0]


def test_patroni_with_tls_is_believed_if_the_authority_of_the_database_signed_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = Authority()
    issued = authority.issue("localhost")
    (tmp_path / "root.pem").write_text(authority.pem)
    (tmp_path / "other.pem").write_text(Authority("Other CA").pem)
    (tmp_path / "server.pem").write_text(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with patroni(200, json.dumps(GOOD).encode(), context) as address:
        assert json.loads(read_config((address,), PATIENCE_S, str(tmp_path / "root.pem"))) == GOOD
        for root in (str(tmp_path / "other.pem"), "", str(tmp_path / "missing.pem")):
            with pytest.raises(PatroniUnread):
                read_config((address,), PATIENCE_S, root)
        found = found_by(cluster, patroni=(address,), tls_root=str(tmp_path / "root.pem"))
    assert (found.faults, found.unseen) == ([], [])


def test_what_is_not_patroni_is_not_understood() -> None:
    for data in (b"<html>", b"[]", b'{"synchronous_mode": [1]}'):
        with pytest.raises(PatroniUnread):
            judge_config(data)
    with pytest.raises(PatroniUnread, match="not an address of HTTP"):
        read_config(("file:///etc/passwd",), 1)
    assert judge_config(b'{"synchronous_mode": "quorum", "synchronous_mode_strict": true}') is None
