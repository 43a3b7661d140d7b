"""Which configuration file a command reads when none is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.config.load import ConfigError
from mailcore.terminal import command

MALLORY = 4_000_000_000  # no such user


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a waypost.toml; nothing is installed."""
    (tmp_path / "waypost.toml").write_text("")
    monkeypatch.setattr(command, "INSTALLED", tmp_path / "not-installed.toml")
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def owned_by(monkeypatch: pytest.MonkeyPatch, owner: int, *, file: bool = True, caller: int = 1234) -> None:
    """Makes the file, or its directory, another user's, and root's all else."""
    real = os.stat

    def stat(path: str | Path, **more: bool) -> os.stat_result:
        given = list(real(path, **more))
        given[4] = owner if (Path(path).name == "waypost.toml") == file else 0
        return os.stat_result(given)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "geteuid", lambda: caller)


def test_that_of_the_current_directory_comes_first(directory: Path) -> None:
    assert command.first_configuration() == Path("waypost.toml")


def test_the_installed_one_comes_second_and_none_last(directory: Path) -> None:
    (directory / "waypost.toml").unlink()
    assert command.first_configuration() is None
    (directory / "not-installed.toml").write_text("")
    assert command.first_configuration() == directory / "not-installed.toml"


@pytest.mark.parametrize("file", [True, False])
def test_that_of_another_user_is_not_read(directory: Path, monkeypatch: pytest.MonkeyPatch, file: bool) -> None:
    owned_by(monkeypatch, MALLORY, file=file)
    with pytest.raises(
        ConfigError, match=rf"belongs to another user \(UID {MALLORY}\) and is not read; give the file with"
    ):
        command.first_configuration()


@pytest.mark.parametrize(("owner", "caller"), [(1234, 1234), (0, 1234), (0, 0)])
def test_that_of_the_caller_or_root_is_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch, owner: int, caller: int
) -> None:
    owned_by(monkeypatch, owner, caller=caller)
    assert command.first_configuration() == Path("waypost.toml")


def test_under_sudo_that_of_the_user_who_called_it_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    owned_by(monkeypatch, 1234, caller=0)
    assert command.first_configuration() == Path("waypost.toml")
    owned_by(monkeypatch, 1234, caller=4321)  # a variable that any user can set
    with pytest.raises(ConfigError):
        command.first_configuration()


def test_a_link_to_nothing_is_named(directory: Path) -> None:
    (directory / "waypost.toml").unlink()
    (directory / "waypost.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match="No such file"):
        command.first_configuration()
