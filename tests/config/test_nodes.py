"""[nodes]: connection strings, and what lacks the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.bounds import BadValue
from mailcore.config.document import ConfigError
from mailcore.config.load import load
from mailcore.config.nodes import Database, Nodes, database_of


def loaded(tmp_path: Path, text: str) -> Nodes:
    config = tmp_path / "waypost.toml"
    config.write_text(f"[nodes]\n{text}")
    return load(config).nodes


def test_a_connection_string_names_all_members() -> None:
    assert database_of("host=db1,db2 port=5433 user=w dbname='way post' sslmode=require") == Database(
        (("db1", 5433), ("db2", 5433)), "way post", "w", "require", ""
    )
    assert database_of(r"host=/run/a\ b,[::1] port=1,2 sslrootcert='/etc/it\'s.pem'") == Database(
        (("/run/a b", 1), ("[::1]", 2)), "waypost", "waypost", "prefer", "/etc/it's.pem"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("db1", "must be a connection string of libpq"),
        ("dbname=waypost", "must be a connection string of libpq"),
        ("host=a,b port=1,2,3", "must be a connection string of libpq"),
        ("host=a port=0", "must be a connection string of libpq"),
        ("host=a host=b", "must be a connection string of libpq"),
        ("host=a sslmode=verify", "must have an sslmode of disable, allow"),
        ("host=a options=-cfsync=off", "must have no other words than host"),
        ("host=a password=secret", "must have no password; put it into a file"),
        ("host=a password='secret", "must be a connection string of libpq"),
    ],
)
def test_another_one_is_refused_and_no_password_is_shown(given: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason) as error:
        database_of(given)
    assert "secret" not in str(error.value)


def test_the_password_lies_beside_the_file(tmp_path: Path) -> None:
    nodes = loaded(tmp_path, 'database = "host=a"\npassword_file = "db"\nshard = "north"\n')
    assert (nodes.password_file, nodes.is_on) == (str(tmp_path / "db"), True)
    assert not loaded(tmp_path, "").is_on


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('shard = "north"\n', "[nodes] shard needs database"),
        ('database = "host=a"\nnode = "a/b"\n', "[nodes] node must be of letters"),
        ('database = "host=a"\npatroni = ["db1:8008"]\n', "[nodes] patroni must be an address of Patroni"),
        ('database = "host=a"\ncommit_wait_s = 0\n', "[nodes] commit_wait_s must be between 1 and 600"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text)
    assert fault in str(error.value)
