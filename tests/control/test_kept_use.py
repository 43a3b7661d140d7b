"""The changes that use a kept file: in a list, instead of its earlier content, beside other rows; and gone."""

from __future__ import annotations

from typing import Any

from mailcore.config.kept_files import Reference
from mailcore.control import kept_use
from mailcore.control.protocol.settings import SettingChange


def ref(kind: str, name: str, digit: str) -> Reference:
    return Reference(kind, name, digit * 16)


OLD, NEW, KEY = ref("certificate", "mx", "1"), ref("certificate", "mx", "2"), ref("key", "mx", "3")
MAP, NEWER = ref("map", "aliases", "4"), ref("map", "aliases", "5")
DOCUMENT: dict[str, Any] = {
    "receiver": {"tls_certificate": str(OLD), "tls_key": "kept:key/mx.9999999999999999"},
    "certificate": [
        {"names": ["a.example"], "certificate": "/etc/a.pem", "key": "/etc/a.key"},
        {"names": ["b.example"], "certificate": str(OLD), "key": "kept:key/mx.9999999999999999"},
    ],
    "rewriting": {"virtual_alias_maps": ["/etc/aliases", f"regexp:{MAP}", "/etc/more"]},
    "tls_policy": {"example.org": {"level": "verify", "ca_file": "kept:ca/own.6666666666666666"}},
    "dkim": [{"domain": "example.org", "selector": "a", "key": "/etc/dkim.pem"}],
}  # fmt: skip


def plain(changes: list[SettingChange]) -> dict[str, Any]:
    return {".".join(each.key): each.value for each in changes}


def test_another_content_takes_the_place_of_the_one_before_everywhere() -> None:
    assert plain(kept_use.renewals(DOCUMENT, [NEW, KEY])) == {
        "receiver.tls_certificate": str(NEW),
        "receiver.tls_key": str(KEY),
        "certificate": [
            DOCUMENT["certificate"][0], {"names": ["b.example"], "certificate": str(NEW), "key": str(KEY)},
        ],
    }  # fmt: skip
    assert plain(kept_use.renewals(DOCUMENT, [NEWER])) == {
        "rewriting.virtual_alias_maps": ["/etc/aliases", f"regexp:{NEWER}", "/etc/more"]
    }
    assert plain(kept_use.renewals(DOCUMENT, [ref("ca", "own", "7")])) == {
        "tls_policy.example.org.ca_file": "kept:ca/own.7777777777777777"
    }


def test_a_file_is_used_where_it_is_wanted() -> None:
    place = ["rewriting", "virtual_alias_maps"]
    other = ref("map", "other", "8")
    assert plain(kept_use.changes_of_place(DOCUMENT, place, other, None)) == {
        "rewriting.virtual_alias_maps": ["/etc/aliases", f"regexp:{MAP}", "/etc/more", str(other)]
    }
    assert plain(kept_use.changes_of_place(DOCUMENT, place, NEWER, None)) == {
        "rewriting.virtual_alias_maps": ["/etc/aliases", str(NEWER), "/etc/more"]
    }
    assert plain(kept_use.changes_of_place({}, place, NEWER, None, patterns=True)) == {
        "rewriting.virtual_alias_maps": [f"regexp:{NEWER}"]
    }
    assert plain(kept_use.changes_of_place({}, ["receiver", "tls_certificate"], NEW, KEY)) == {
        "receiver.tls_certificate": str(NEW), "receiver.tls_key": str(KEY),
    }  # fmt: skip
    rows = plain(kept_use.changes_of_rows(DOCUMENT, NEW, KEY, ["b.example"]))["certificate"]
    assert [each["names"] for each in rows] == [["a.example"], ["b.example"]]
    assert rows[1]["certificate"] == str(NEW)
    key = ref("dkim", "b._domainkey.example.org", "1")
    rows = plain(kept_use.changes_of_dkim(DOCUMENT, key, "example.org", "b", subdomains=True))["dkim"]
    assert [each["selector"] for each in rows] == ["a", "b"]
    assert rows[1]["subdomains"] is True


def test_the_end_of_its_use_leaves_all_others() -> None:
    assert plain(kept_use.changes_without(DOCUMENT, [MAP])) == {
        "rewriting.virtual_alias_maps": ["/etc/aliases", "/etc/more"]
    }
    gone = plain(kept_use.changes_without(DOCUMENT, [OLD]))
    assert gone == {"receiver.tls_certificate": None, "certificate": [DOCUMENT["certificate"][0]]}
    used = kept_use.used_by(DOCUMENT)
    assert used[OLD] == ["[receiver] tls_certificate", "[[certificate]] b.example"]
    assert used[ref("ca", "own", "6")] == ["[tls_policy] example.org"]
