"""The name of a boot, also where a service sees processes alone in /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore import boot

KERNELS = Path("/proc/sys/kernel/random/boot_id")


def test_it_is_the_name_that_the_kernel_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(boot.BOOT, raising=False)
    assert boot.boot_id() == KERNELS.read_text().strip()


def test_a_unit_tells_the_same_name_without_hyphens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(boot, "_FILE", tmp_path / "missing")
    monkeypatch.setenv(boot.BOOT, KERNELS.read_text().strip().replace("-", ""))
    assert boot.boot_id() == KERNELS.read_text().strip()
    monkeypatch.delenv(boot.BOOT)
    with pytest.raises(FileNotFoundError):
        boot.boot_id()
