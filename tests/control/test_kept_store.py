"""Kept files are whole or not there, whenever a process dies; and they go when nothing needs them.

law: kept-files-never-change.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.kept_files import KINDS, Reference, kept_path, unkept, why_missing
from mailcore.control.kept_store import DAY_S, FILES_MAX, KEY_DAYS, STAGED_DAYS, KeptStore, NotKept

NOW = 1_800_000_000.0


class Killed(BaseException):
    """The process ends here."""


def test_a_file_is_whole_or_not_there_wherever_the_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each system call in turn is the last one; what a setting could refer to is read then."""
    calls = 0

    def counted(name: str, last: int) -> Any:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > last:
                raise Killed
            return real(*arguments, **named)

        return call

    done = False
    for last in range(1, 60):
        home = tmp_path / str(last)
        home.mkdir()
        calls = 0
        with monkeypatch.context() as patched:
            for name in ("open", "fsync", "fchmod", "mkdir", "rename", "replace", "unlink"):
                patched.setattr(os, name, counted(name, last))
            try:
                KeptStore(home).put("key", "mx", b"x" * 9000)
                done = True
            except Killed:
                pass
        for reference, _ in KeptStore(home).files():
            assert KeptStore(home).read(reference) == b"x" * 9000
        reference = KeptStore(home).put("key", "mx", b"x" * 9000)
        assert why_missing(home, reference) == ""
        if done:
            return
    raise AssertionError("it has no end")


def test_a_name_is_synced_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    reference = KeptStore(tmp_path).put("map", "aliases", b"a b\n")
    path = kept_path(tmp_path, reference)
    assert synced[-2:] == [f"{path}.new", str(path.parent)]


def test_keys_and_maps_are_read_by_their_group_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        for kind in KINDS:
            path = kept_path(tmp_path, KeptStore(tmp_path).put(kind, "mx", b"x"))
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o644 if kind in ("certificate", "ca") else 0o640), kind
            assert bool(path.parent.stat().st_mode & stat.S_IROTH) == (kind in ("certificate", "ca"))
    finally:
        os.umask(old)


def test_a_file_that_was_changed_by_hand_is_not_used(tmp_path: Path) -> None:
    store = KeptStore(tmp_path)
    reference = store.put("map", "aliases", b"a@example.org b@example.org\n")
    kept_path(tmp_path, reference).write_bytes(b"a@example.org c@example.org\n")
    assert "changed by hand" in why_missing(tmp_path, reference)
    with pytest.raises(NotKept, match="by hand"):
        store.read(reference)
    assert store.put("map", "aliases", b"a@example.org b@example.org\n") == reference
    assert why_missing(tmp_path, reference) == ""


def test_what_nothing_needs_goes_and_keys_go_first(tmp_path: Path) -> None:
    store = KeptStore(tmp_path, lambda: NOW)
    names = ("used", "before", "staged", "forgotten")
    found = {(kind, name): store.put(kind, name, b"x") for kind in ("key", "map") for name in names}
    for (_, name), reference in found.items():
        age = (STAGED_DAYS + 1) * DAY_S if name in ("forgotten", "used") else DAY_S
        os.utime(kept_path(tmp_path, reference), (NOW - age, NOW - age))
    left_at = {found[kind, "before"]: NOW - (KEY_DAYS + 1) * DAY_S for kind in ("key", "map")}
    used = {found[kind, "used"] for kind in ("key", "map")}
    removed = store.tidy(used, left_at)
    assert {(each.kind, each.name) for each in removed} == {
        ("key", "forgotten"), ("map", "forgotten"), ("key", "before"),
    }  # fmt: skip
    half = tmp_path / "kept" / "key" / "x.0123456789abcdef.new"
    half.write_bytes(b"half")
    store.tidy(used, left_at)
    assert not half.exists()


def test_more_than_is_sensible_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.control.kept_store.FILES_MAX", 2)
    store = KeptStore(tmp_path)
    for number in range(2):
        store.put("map", "a", b"%d" % number)
    with pytest.raises(NotKept, match="at most 2 files"):
        store.put("map", "a", b"3")
    assert FILES_MAX >= 1000


@pytest.mark.parametrize(
    "text",
    ["kept:key/../x.0123456789abcdef", "kept:key//etc/passwd.0123456789abcdef", "kept:other/x.0123456789abcdef",
     "kept:key/.x.0123456789abcdef", "kept:key/x.0123456789ABCDEF", "kept:key/x\n.0123456789abcdef", "/etc/shadow", 7, None],
)  # fmt: skip
def test_a_reference_names_nothing_outside(text: object) -> None:
    assert Reference.parse(text) is None
    assert unkept(("receiver", "tls_key"), text, [])


def test_a_managed_list_may_have_what_the_file_has_and_kept_ones_of_its_kind() -> None:
    key, mine = ("rewriting", "virtual_alias_maps"), "kept:map/a.0123456789abcdef"
    assert unkept(key, ["/etc/aliases", mine, f"regexp:{mine}"], ["/etc/aliases"]) == ""
    assert "names a file" in unkept(key, ["/etc/shadow", mine], ["/etc/aliases"])
    assert "of the kind map" in unkept(key, ["kept:key/a.0123456789abcdef"], [])
