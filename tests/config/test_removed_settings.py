"""What the configuration file has and the managed one removes: values and rows that do not count, and can be returned.

law: managed-is-a-layer.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.config.document import ConfigError
from mailcore.config.load import load, load_managed
from mailcore.config.managed import Managed, changed, document_text, layered, merged, not_removable, values_of
from mailcore.config.tuned import Timed, Values
from mailcore.control.known_settings import known_settings

BELOW: dict[str, Any] = {
    "relay": {"domains": ["a.example"]},
    "routes": {"*": "smtp", "a.example": "bulk"},
    "transports": {
        "provider": {"tls": "none", "destinations": {"x.example": {"rate_delay_s": 1}}},
        "smtp": {"tls": "may"},
    },
    "listener": [{"address": "127.0.0.1:2526"}],
    "certificate": [{"certificate": "/x", "key": "/y"}],
    "client_auth": {"password_file": "/z", "enabled": True},
}


def file(tmp_path: Path, text: str = "") -> Path:
    path = tmp_path / "waypost.toml"
    path.write_text(f"home = '{tmp_path / 'home'}'\n{text}")
    (tmp_path / "home").mkdir(exist_ok=True)
    return path


def test_a_row_that_is_removed_does_not_count_and_the_rest_of_the_file_does(tmp_path: Path) -> None:
    text = """[transports.provider]
tls = "encrypt"
[routes]
"*" = "smtp:[192.0.2.1]:25"
"a.example" = "provider:[192.0.2.2]:25"
"b.example" = "smtp:[192.0.2.3]:25"
"""
    path = file(tmp_path, text)
    removed = """removed = ['routes."a.example"', 'transports.provider']\n"""
    settings, _ = load_managed(path, removed)
    assert sorted(settings.routes) == ["*", "b.example"]
    assert "provider" not in settings.transports
    with pytest.raises(ConfigError, match="provider"):
        load_managed(path, "removed = ['transports.provider']\n")  # a route still names it
    new, _ = load_managed(path, removed + "[transports.provider]\nprocess_limit = 7\n")
    assert (new.transports["provider"].process_limit, new.transports["provider"].tls) == (7, "may")
    (tmp_path / "home" / "managed.toml").write_text(removed)
    assert load(path).routes == settings.routes
    path.write_text(path.read_text().replace('"a.example"', '"c.example"').replace("provider:", "smtp:"))
    assert "c.example" in load(path).routes, "what the file does not have any more is no fault"


@pytest.mark.parametrize(
    ("removed", "words"),
    [
        ("7", "must be a list of keys"),
        ("[7]", "must be a list of keys"),
        ("['a b']", "must be a list of keys"),
        ("['relay']", "must be a value or a row"),
        ("['home.x']", "mail is there"),
        ("['portal.manages']", "it says who may manage"),
        ("['client_auth.password_file']", "it names a file"),
        ("['alerts.smtp_password_file']", "it names a file"),
    ],
)
def test_what_may_not_be_managed_is_not_removed_either(tmp_path: Path, removed: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_managed(file(tmp_path), f"\nremoved = {removed}\n")
    assert words in str(raised.value)
    assert "managed.toml:2: removed" in str(raised.value)


def test_a_row_that_has_a_setting_of_the_file_alone_is_not_removed_with_it() -> None:
    below = {"tls_policy": {"x": {"level": "verify", "other_file": "/x"}}}
    assert "other_file can't be managed here: it names a file" in not_removable(("tls_policy", "x"), below)
    assert not not_removable(("certificate",), BELOW), "Waypost keeps files of this kind"


def test_a_removal_takes_what_was_changed_above_it_along_and_is_itself_taken_back() -> None:
    provider, tls = ("transports", "provider"), ("transports", "provider", "tls")
    document = changed({}, [(tls, "verify")])
    document = changed(document, [], [tls])
    assert document == {"removed": ["transports.provider.tls"]}
    document = changed(document, [], [provider])
    assert document == {"removed": ["transports.provider"]}, "one for the whole row"
    assert changed(document, [], [tls]) == document
    again = changed(document, [((*provider, "process_limit"), 7)])
    assert layered(BELOW, again)["transports"]["provider"] == {"process_limit": 7}
    assert changed(again, [(provider, None)]) == {}, "taken back, with what was changed in it"
    route = ("routes", "a.example")
    assert changed(changed({}, [], [route]), [(route, "x")]) == {"routes": {"a.example": "x"}}


def test_what_is_removed_is_listed_with_what_the_file_has() -> None:
    document = {"removed": ["transports.provider", "routes.gone", 'routes."a.example"'], "routes": {"b.example": "x"}}
    found = {tuple(each.key): each for each in known_settings(BELOW, Managed(Path("m"), "", document))}
    tls = found["transports", "provider", "tls"]
    assert (tls.value, tls.origin, tls.below, tls.removed) == (None, "removed", "none", ["transports", "provider"])
    gone = found["routes", "gone"]
    assert (gone.value, gone.origin, gone.below) == (None, "removed", None)
    assert (found["routes", "b.example"].origin, found["routes", "*"].origin) == ("managed", "file")


def test_what_is_tuned_is_listed_above_both_files_while_it_lasts() -> None:
    lasting: Values = {"": {"qmgr_message_active_limit": 9}, "provider": {"process_limit": 8}}
    timed: Timed = {
        "provider": {"process_limit": (7, 200.0), "recipient_limit": (5, 50.0)},
        "provider:x.example": {"destination_rate_delay": (3.0, 200.0)},
    }
    managed = Managed(Path("m"), "", {"transports": {"provider": {"process_limit": 6}}})
    found = {tuple(each.key): each for each in known_settings(BELOW, managed, (lasting, timed), 100.0)}
    limit = found["transports", "provider", "process_limit"]
    assert (limit.value, limit.origin) == (6, "managed")
    assert [(each.value, each.until) for each in limit.tuned] == [(7, 200.0), (8, None)]
    assert ("transports", "provider", "recipient_limit") not in found, "its time is over"
    own = found["transports", "provider", "destinations", "x.example", "destination_rate_delay"]
    assert (own.origin, own.value, [each.value for each in own.tuned]) == ("tuned", None, [3.0])
    assert found["scheduler", "qmgr_message_active_limit"].origin == "tuned"
    assert found["transports", "smtp", "tls"].tuned == []


def test_a_path_that_the_file_has_dropped_is_told_with_what_to_do(tmp_path: Path) -> None:
    own = "[rewriting]\nvirtual_alias_maps = ['{}']\n"
    above = "[rewriting]\nvirtual_alias_maps = ['/etc/aliases.map']\n"
    path = file(tmp_path, own.format("/etc/aliases.map"))
    load_managed(path, above)
    file(tmp_path, own.format("/etc/other.map"))
    with pytest.raises(ConfigError) as raised:
        load_managed(path, above)
    assert "managed.toml:2" in str(raised.value)
    assert "'/etc/aliases.map'. Name it there (again), undo this change" in str(raised.value)


_keys = st.sampled_from(
    [key for key in values_of(BELOW) if len(key) > 1] + [("transports", "provider"), ("routes", "new")]
)
_steps = st.lists(st.tuples(st.sampled_from(["set", "unset", "remove"]), _keys), max_size=12)


@given(_steps)
def test_any_changes_and_removals_leave_a_file_that_is_read_as_it_was_written(steps: list[tuple[str, Any]]) -> None:
    document: dict[str, Any] = {}
    for what, key in steps:
        if what == "remove":
            document = changed(document, [], [key])
            level: Any = layered(BELOW, document)
            for part in key:
                level = level.get(part, {}) if isinstance(level, dict) else {}
            assert level == {}, key
        elif key != ("transports", "provider") or what == "unset":
            document = changed(document, [(key, "v" if what == "set" else None)])
        assert tomllib.loads(document_text(document)) == document
    for key in [
        tuple(each.key) for each in known_settings(BELOW, Managed(Path("m"), "", document)) if each.origin != "file"
    ]:
        document = changed(document, [(key, None)])
    for key in Managed(Path("m"), "", document).removed:
        document = changed(document, [(key, None)])
    assert document == {}, "all of it can be taken back"
    assert layered(BELOW, document) == merged(BELOW, {}) == BELOW
