"""Who is among the nodes that trust each other: joining with a token, being removed, and what strangers get.

Proves law: trust-is-a-row, law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.faults import FaultError
from mailcore.nodes import joining
from mailcore.nodes.accepting import Accepting
from mailcore.nodes.authority import BadToken, make_authority, make_node, make_token, open_sealed, seal
from mailcore.nodes.joining import NotJoined
from mailcore.nodes.meeting import NodesMeeting
from mailcore.nodes.node_files import CERTIFICATE, KEY, directory_of, read_authority, write_files
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.trust import SERVICE, Trust
from mailcore.replication.connection import Connection
from mailcore.replication.giver_row import GiverRow
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S, eventually
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster


@dataclass
class Home:
    """The home of a node that does not run."""

    name: str
    config: Path
    settings: Settings

    def run(self, *arguments: str) -> int:
        return main(["node", *arguments, "--config", str(self.config)])


Made = Callable[[str], Home]


@pytest.fixture
def made(cluster: Cluster, tmp_path: Path) -> Made:
    def make(name: str) -> Home:
        own = tmp_path / name
        (own / "home").mkdir(parents=True)
        config = own / "waypost.toml"
        config.write_text(
            f'home = "home"\n[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "{name}"\n'
            f'listen = "127.0.0.1:{free_port()}"\n'
        )
        return Home(name, config, load(config))

    return make


@pytest.fixture
def first(made: Made) -> Home:
    home = made("a")
    joining.begin(home.settings, again=False)
    return home


def let_in(first: Home, other: Home) -> Home:
    joining.join(other.settings, joining.add(first.settings, other.name, 5))
    return other


def names(home: Home) -> list[str]:
    return [row.node for row in joining.nodes_of(home.settings)]


def trust_of(home: Home) -> Trust:
    """What a process of this node knows."""
    trust = Trust(home.settings, home.name, home.settings.nodes.listen)
    look(home, trust)
    return trust


def look(home: Home, trust: Trust) -> None:
    connection = Connection.open(parameters_of(home.settings))
    trust.read(connection)
    connection.close()


def certificate_of(home: Home) -> bytes:
    return ssl.PEM_cert_to_DER_cert((directory_of(home.settings) / CERTIFICATE).read_text())


# -- joining


def test_nodes_join_with_a_token_and_are_listed(
    first: Home, made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = made("b")
    assert first.run("add", "b") == 0
    token = capsys.readouterr().out
    read, write = os.pipe()
    os.write(write, token.encode())
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert b.run("join") == 0
    assert capsys.readouterr().out == "node b is in\n"
    assert b.run("list") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NODE", "ADDRESS", "JOINED"]
    assert [row.split()[:2] for row in rows] == [["a", first.settings.nodes.listen], ["b", b.settings.nodes.listen]]
    assert ["this node" in row for row in rows] == [False, True]
    assert b.run("list", "--json") == 0
    assert [row["here"] for row in json.loads(capsys.readouterr().out)["nodes"]] == [False, True]


def test_a_token_counts_once(first: Home, made: Made) -> None:
    b = made("b")
    token = joining.add(first.settings, "b", 5)
    joining.join(b.settings, token)
    with pytest.raises(NotJoined, match="was used"):
        joining.join(b.settings, token)


def test_a_token_counts_for_its_node_for_its_time_and_until_another_one(
    first: Home, made: Made, cluster: Cluster
) -> None:
    b, c = made("b"), made("c")
    with pytest.raises(NotJoined, match="this token is for node b"):
        joining.join(c.settings, joining.add(first.settings, "b", 5))
    late = joining.add(first.settings, "b", 5)
    cluster.primary.sql("update waypost.node_token set expires_at = now() - interval '1 s'")
    with pytest.raises(NotJoined, match="time of this token is over"):
        joining.join(b.settings, late)
    old, new = (joining.add(first.settings, "b", 5) for _ in range(2))
    with pytest.raises(NotJoined, match="replaced"):
        joining.join(b.settings, old)
    joining.join(b.settings, new)
    assert names(first) == ["a", "b"]


@pytest.mark.parametrize("wrong", ["", "rubbish", "waypost-node-", "waypost-node-AAAA", "waypost-node-ä"])
def test_what_is_no_token_is_refused_and_not_repeated(first: Home, made: Made, wrong: str) -> None:
    with pytest.raises(NotJoined) as caught:
        joining.join(made("b").settings, wrong)
    assert not wrong or wrong not in caught.value.fault.message


def test_a_removed_node_is_out_and_may_join_again(first: Home, made: Made) -> None:
    b = let_in(first, made("b"))
    joining.remove(first.settings, "b")
    assert names(first) == ["a"]
    with pytest.raises(NotJoined, match="not in itself"):
        joining.add(b.settings, "c", 5)
    with pytest.raises(FaultError, match="b is not in"):
        joining.remove(first.settings, "b")
    let_in(first, b)
    assert names(first) == ["a", "b"]


def test_there_is_one_authority_and_another_one_puts_all_others_out(first: Home, made: Made) -> None:
    b = let_in(first, made("b"))
    token = joining.add(first.settings, "c", 5)
    with pytest.raises(NotJoined, match="there are nodes"):
        joining.begin(made("d").settings, again=False)
    joining.begin(b.settings, again=True)
    assert names(b) == ["b"]
    with pytest.raises(NotJoined, match="not in itself"):
        joining.add(first.settings, "c", 5)
    with pytest.raises(NotJoined, match="does not know this token"):
        joining.join(made("c").settings, token)


def test_without_a_database_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text("")
    assert main(["node", "list", "--config", str(config)]) == 2
    assert "set database in [nodes]" in capsys.readouterr().err
    config.write_text(f'[nodes]\ndatabase = "host={tmp_path}"\n')
    assert main(["node", "list", "--config", str(config)]) == 3
    assert main(["node", "add", "b/../c", "--config", str(config)]) == 2


# -- law: keys-stay-secret


def test_law_keys_only_the_owner_reads_them_and_the_database_has_none(
    first: Home, made: Made, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert first.run("add", "c") == 0
    token = capsys.readouterr().out.strip()
    let_in(first, made("b"))
    directory = directory_of(first.settings)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == dict.fromkeys(
        ("authority.pem", "authority.key", "node.pem", "node.key"), 0o600
    )
    rows = cluster.primary.sql(
        "select encode(sealed, 'escape'), encode(digest, 'escape') from waypost.node_token"
    ) + cluster.primary.sql("select encode(certificate, 'escape') from waypost.node_trust")
    shown = str(rows) + repr(read_authority(first.settings))
    assert "PRIVATE" not in shown
    assert token.removeprefix("waypost-node-") not in shown


def test_a_sealed_authority_is_opened_by_its_token_for_its_node_alone() -> None:
    authority, token = make_authority(0.0), make_token()
    sealed = seal(authority, token, "b")
    assert open_sealed(sealed, token, "b") == authority
    for wrong in (
        (sealed, make_token(), "b"),
        (sealed, token, "c"),
        (sealed[:-1] + b"\0", token, "b"),
        (b"", token, "b"),
    ):
        with pytest.raises(BadToken):
            open_sealed(*wrong)


# -- law: trust-is-a-row


def test_law_trust_a_certificate_counts_while_its_row_is_there(first: Home, made: Made) -> None:
    b = let_in(first, made("b"))
    trust = trust_of(first)
    before = certificate_of(b)
    assert (trust.name_of(certificate_of(first)), trust.name_of(before), trust.name_of(None)) == ("a", "b", "")
    let_in(first, b)  # with another certificate
    look(first, trust)
    assert (trust.name_of(before), trust.name_of(certificate_of(b))) == ("", "b")
    joining.remove(first.settings, "b")
    look(first, trust)
    assert trust.name_of(certificate_of(b)) == ""
    joining.remove(first.settings, "a")
    look(first, trust)
    assert not trust.is_in()
    assert "is not in" in trust.why_not


def test_law_trust_rows_that_were_not_read_for_a_while_are_not_believed(first: Home, made: Made) -> None:
    b = let_in(first, made("b"))
    now = 100.0
    trust = Trust(first.settings, "a", "x:1", believed_s=10, clock=lambda: now)
    assert trust.why_not == "the database was not read yet"
    look(first, trust)
    now = 110.0
    assert (trust.name_of(certificate_of(b)), trust.is_in()) == ("b", True)
    now = 110.5
    assert (trust.name_of(certificate_of(b)), trust.is_in()) == ("", False)
    now = 161.0
    assert trust.why_not == "the database was not read for 61 s, so no other node is trusted"
    look(first, trust)
    assert trust.name_of(certificate_of(b)) == "b"
    assert trust_of(first).is_in(), "a manager has the election besides"


def test_another_address_of_a_node_is_written(first: Home, made: Made) -> None:
    trust = Trust(first.settings, "a", "mx1.example.org:2526")
    look(first, trust)
    assert [row.address for row in joining.nodes_of(first.settings)] == ["mx1.example.org:2526"]


class Answering(asyncio.Protocol):
    """Counts what reaches the process behind the TLS, and answers."""

    heard: list[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)
        self.transport.write(b"answer")


@dataclass
class Elected:
    """An election whose row a test writes."""

    row: GiverRow
    elected: object = None
    fault: None = None


async def served(home: Home) -> tuple[Accepting, NodesMeeting, list[bytes]]:
    heard: list[bytes] = []

    class Serving(Answering):
        pass

    Serving.heard = heard
    meeting = NodesMeeting(home.settings, parameters_of(home.settings))
    look(home, meeting.trust)
    server = await meeting.listen(asyncio.get_running_loop(), Serving)
    return server, meeting, heard


async def says(home: Home, context: ssl.SSLContext | None, data: bytes = b"question") -> bytes:
    """What the node answers to a client, b"" for nothing."""
    _, _, port = home.settings.nodes.listen.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(port), ssl=context, server_hostname=None if context is None else SERVICE
        )
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(100), 5.0)
        writer.close()
        return answer
    except (OSError, TimeoutError):
        return b""


def context_of(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    return context


async def test_law_trust_strangers_get_no_answer_and_removed_nodes_get_no_more(
    first: Home, made: Made, tmp_path: Path
) -> None:
    b = let_in(first, made("b"))
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    server, meeting, heard = await served(first)
    try:
        trusted = context_of(directory_of(b.settings))
        assert await says(first, trusted) == b"answer"
        heard.clear()

        assert await says(first, None, b"GET / HTTP/1.1\r\n\r\n") in (b"", b"\x15\x03\x01\x00\x02\x02F")  # a TLS alert
        unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unknown.check_hostname, unknown.verify_mode = False, ssl.CERT_NONE
        assert await says(first, unknown) == b""
        other, stranger = make_authority(0.0), made("stranger")
        write_files(stranger.settings, other, make_node(other, "b", 0.0))
        assert await says(first, context_of(directory_of(stranger.settings))) == b""
        signed = read_authority(first.settings)  # by the authority, but never let in
        write_files(stranger.settings, signed, make_node(signed, "b", 0.0))
        assert await says(first, context_of(directory_of(stranger.settings))) == b""
        assert heard == []

        _, _, port = first.settings.nodes.listen.rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port), ssl=trusted, server_hostname=SERVICE)
        writer.write(b"question")
        assert await reader.read(100) == b"answer"
        joining.remove(first.settings, "b")
        look(first, meeting.trust)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(100), PATIENCE_S) == b"", "its connection is ended"
        writer.close()
        assert await says(first, trusted) == b""
        assert heard == [b"question"]
        assert faults == [], "the manager would end"
    finally:
        server.close()


async def test_law_trust_what_answers_in_the_place_of_the_giver_must_be_its_node(first: Home, made: Made) -> None:
    b, c = let_in(first, made("b")), let_in(first, made("c"))
    server, _, heard = await served(b)
    asking = NodesMeeting(c.settings, parameters_of(c.settings))
    look(c, asking.trust)
    made_links: list[Answering] = []

    class Asking(Answering):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            made_links.append(self)
            self.transport.write(b"question")

        def data_received(self, data: bytes) -> None:
            self.heard.append(data)

    Asking.heard = []
    loop = asyncio.get_running_loop()
    try:
        asking._election = Elected(GiverRow(1, "a/x", 1, b.settings.nodes.listen))  # type: ignore[assignment]
        with pytest.raises(OSError, match="the certificate there is not that of node a"):
            await asking.open(loop, Asking, Asking)
        assert "node a at" in asking.trouble()
        assert (made_links, heard) == ([], [])
        asking._election = Elected(GiverRow(2, "b/x", 1, b.settings.nodes.listen))  # type: ignore[assignment]
        await asking.open(loop, Asking, Asking)
        await eventually(lambda: Asking.heard == [b"answer"], "the answer of b")
        assert asking.is_current()
        asking._election = Elected(GiverRow(3, "a/x", 1, first.settings.nodes.listen))  # type: ignore[assignment]
        assert not asking.is_current()
    finally:
        for link in made_links:
            link.transport.abort()
        server.close()


async def test_a_port_that_is_taken_is_an_error_of_the_giver_alone(first: Home) -> None:
    meeting = NodesMeeting(first.settings, parameters_of(first.settings))
    look(first, meeting.trust)
    _, _, port = first.settings.nodes.listen.rpartition(":")
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(port)))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            await meeting.listen(asyncio.get_running_loop(), Answering)
