"""The layer above the configuration file: what counts, what is written, and what may not be managed.

law: managed-is-a-layer.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.bounds import bounds_by_name
from mailcore.config.dkim import DkimKey
from mailcore.config.document import ConfigError
from mailcore.config.listeners import Certificate, Listener
from mailcore.config.load import load, load_managed
from mailcore.config.managed import Managed, changed, document_text, keys_of, merged, not_managed, revision_of
from mailcore.config.milters import Milter
from mailcore.config.settings import DIRECTORIES, SECTIONS, Destination, TlsPolicy, Transport

TABLES: dict[str, type] = {"transports": Transport, "tls_policy": TlsPolicy, "listener": Listener, "milter": Milter}
NO_FILES = {  # they speak of files and name none
    ("maildrop", "files_max"),
    ("queue", "ballast_inodes"),
    ("queue", "carry_limit"),
    ("queue", "refer_deferred"),
    ("queue", "reserve_inodes"),
    ("receiver", "milters"),  # of a socket, which a milter listens on
    ("recipients", "file_domains"),
    ("recipients", "known_by"),
    ("rewriting", "recipient_delimiter"),
    ("tlsrpt", "bytes_max"),
}


def settings_that_name_files() -> Iterator[tuple[str, str]]:
    for section, kind in (*SECTIONS.items(), *TABLES.items(), ("transports.destinations", Destination)):
        for name, bounds in bounds_by_name(kind).items():
            if any(word in bounds.doc.lower() for word in ("file", "director", "path")):
                yield section, name


def test_no_setting_that_names_a_file_can_be_managed() -> None:
    """A new setting whose description speaks of files must be looked at: listed here, or refused."""
    managed = {(section, name) for section, name in settings_that_name_files() if not not_managed((section, name))}
    assert managed == NO_FILES


@pytest.mark.parametrize("kind", [Certificate, DkimKey])
def test_certificates_and_keys_are_files(kind: type) -> None:
    section = "certificate" if kind is Certificate else "dkim"
    names = {each.name for each in dataclasses.fields(kind)} & {"certificate", "key"}
    assert names
    for name in names:
        assert "file" in not_managed((section, 0, name))


@pytest.mark.parametrize(
    "key", [("home",), *((name,) for name in DIRECTORIES), ("portal", "manages"), ("control", "group"), ()]
)
def test_places_and_rights_are_not_managed(key: tuple[str, ...]) -> None:
    assert not_managed(key)


def test_the_server_of_a_password_stands_where_the_password_is_named(tmp_path: Path) -> None:
    above = '[alerts]\nrecipients = ["a@example.org"]\nsmtp = "mail.example.net:25"\n'
    settings, _ = load_managed(file(tmp_path), above)
    assert (settings.alerts.recipients, settings.alerts.smtp) == (("a@example.org",), "mail.example.net:25")
    own = '[alerts]\nsmtp = "own.example:587"\nsmtp_tls = "verify"\nsmtp_user = "w"\nsmtp_password_file = "p"\n'
    assert load_managed(file(tmp_path, own), "[alerts]\noff = ['disk']\n")[0].alerts.off == ("disk",)
    for line in ('smtp = "mail.example.net:25"', 'smtp_tls = "implicit"', 'smtp_user = "x"'):
        with pytest.raises(ConfigError, match="the password in smtp_password_file would go there"):
            load_managed(file(tmp_path, own), f"[alerts]\n{line}\n")
    with pytest.raises(ConfigError, match="it names a file"):
        load_managed(file(tmp_path), "[alerts]\nsmtp_password_file = '/etc/shadow'\n")


def test_a_value_above_counts_and_the_others_stay() -> None:
    below = {"relay": {"domains": ["a"], "networks": ["n"]}, "routes": {"*": "x"}, "listener": [{"address": "1"}]}
    above = {"relay": {"domains": ["b"]}, "routes": {"c": "y"}, "listener": [{"address": "2"}, {"address": "3"}]}
    assert merged(below, above) == {
        "relay": {"domains": ["b"], "networks": ["n"]},
        "routes": {"*": "x", "c": "y"},
        "listener": [{"address": "2"}, {"address": "3"}],
    }
    assert below["relay"] == {"domains": ["a"], "networks": ["n"]}, "unchanged"


def test_a_change_sets_and_removes_and_leaves_no_empty_section() -> None:
    document = changed({}, [(("transports", "smtp", "tls"), "none"), (("relay", "domains"), [])])
    assert document == {"transports": {"smtp": {"tls": "none"}}, "relay": {"domains": []}}
    without = changed(document, [(("transports", "smtp", "tls"), None), (("bounce", "x"), None)])
    assert without == {"relay": {"domains": []}}
    with pytest.raises(ValueError, match="domains is not a section"):
        changed(document, [(("relay", "domains", "x"), 1)])


_characters = st.characters(codec="utf-8")
_text = st.text(_characters, max_size=12)
_names = st.text(_characters, min_size=1, max_size=12)
_values = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False),
    _text,
    st.lists(_text, max_size=4),
    st.lists(st.integers(-9, 9), max_size=3),
)
_sections = st.dictionaries(_names, _values, min_size=1, max_size=3)
_documents = st.dictionaries(
    _names,
    st.one_of(
        _values,
        st.dictionaries(_names, st.one_of(_values, _sections), min_size=1, max_size=4),
        st.lists(_sections, min_size=1, max_size=3),
    ),
    max_size=5,
)


@given(_documents)
def test_any_document_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert tomllib.loads(document_text(document)) == document
    assert bool(list(keys_of(document))) == bool(document)


def test_a_revision_is_another_for_another_text_of_either_file() -> None:
    assert len({revision_of("a", "b"), revision_of("ab", ""), revision_of("", "ab"), revision_of("a", "c")}) == 4


def file(tmp_path: Path, text: str = "") -> Path:
    path = tmp_path / "waypost.toml"
    path.write_text(f"home = '{tmp_path / 'home'}'\n{text}")
    (tmp_path / "home").mkdir(exist_ok=True)
    return path


def test_both_files_are_checked_as_a_whole(tmp_path: Path) -> None:
    path = file(tmp_path, "[scheduler]\nminimal_backoff_time = 600.0\n")
    settings, managed = load_managed(path, "[scheduler]\nmaximal_backoff_time = 700.0\n")
    assert settings.scheduler.minimal_backoff_time == 600.0
    assert managed.path == tmp_path / "home" / "managed.toml"
    with pytest.raises(ConfigError, match="minimal_backoff_time must not be greater"):
        load_managed(path, "[scheduler]\nmaximal_backoff_time = 500.0\n")


def test_faults_of_both_files_are_told_with_their_lines(tmp_path: Path) -> None:
    path = file(tmp_path, "[relay]\nnetworks = 7\n")
    (tmp_path / "home" / "managed.toml").write_text("\n[relay]\ndomains = 8\n\n[[listener]]\naddress = 9\n")
    with pytest.raises(ConfigError) as raised:
        load(path)
    first, *others = str(raised.value).splitlines()
    assert first.startswith(f"{path}:3: [relay] networks")
    assert [line.rpartition("/home/")[2].split(" must")[0] for line in others[:2]] == [
        "managed.toml:3: [relay] domains",
        "managed.toml:6: [[listener]] address",
    ]


@pytest.mark.parametrize("content", [b"\xff", b"[relay", b"x" * ((1 << 20) + 1)])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes) -> None:
    path = file(tmp_path)
    (tmp_path / "home" / "managed.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"managed\.toml"):
        load(path)


def test_without_a_file_and_where_none_is_wanted_nothing_is_above(tmp_path: Path) -> None:
    assert Managed.read(tmp_path / "none").document == {}
    path = file(tmp_path, "[portal]\nmanages = false\n")
    (tmp_path / "home" / "managed.toml").write_text("[relay")
    assert load(path).relay.domains == ()
    with pytest.raises(ConfigError, match="manages is false"):
        load_managed(path, "")


@pytest.mark.parametrize(
    "more",
    [
        '[[listener]]\naddress = "127.0.0.1:465"\ntls = "implicit"\n',
        '[[dkim]]\ndomain = "a.example"\nselector = "s"\nkey = "/etc/waypost/dkim/a.pem"\n',
        '[rewriting]\nvirtual_alias_maps = ["/etc/waypost/aliases"]\n',
    ],
)
def test_what_is_right_for_the_core_alone_stops_no_program_beside_it(tmp_path: Path, more: str) -> None:
    """On a server the portal's file has no certificates and keys, which a managed setting may need or repeat."""
    path = file(tmp_path, '[reports]\nrecipients = ["r@a.example"]\n[relay]\ndomains = ["a.example"]\n')
    managed = tmp_path / "home" / "managed.toml"
    managed.write_text(f"removed = ['reports.recipients', 'relay.networks']\n[alerts]\noff = ['disk']\n{more}")
    with pytest.raises(ConfigError):
        load(path)
    found = load(path, look_at_certificate=False, managed_may_be_hidden=True)
    assert (found.alerts.off, found.reports.recipients, found.relay.domains) == (("disk",), (), ("a.example",))
    assert [each.address for each in found.listener] == (["127.0.0.1:465"] if "listener" in more else [])
    managed.write_text("[alerts]\noff = 7\n")
    with pytest.raises(ConfigError, match=r"managed\.toml:2"):
        load(path, look_at_certificate=False, managed_may_be_hidden=True)
    path.write_text(path.read_text() + "[queue]\nnothing = 1\n")
    with pytest.raises(ConfigError, match="nothing"):
        load(path, look_at_certificate=False, managed_may_be_hidden=True)


def test_a_file_that_this_user_may_not_read_stops_the_core_and_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "[relay]\ndomains = ['a.example']\n")

    def refused(path: Path) -> Managed:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Managed, "read", refused)
    with pytest.raises(ConfigError, match=r"managed\.toml: cannot be read: Permission denied"):
        load(path)
    assert load(path, managed_may_be_hidden=True).relay.domains == ("a.example",)
