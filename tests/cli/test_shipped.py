"""The files of share/, which a release installs: manual pages and completion scripts made from the parsers, as golden files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.completion import bash_script, zsh_script
from mailcore.cli.main import main
from mailcore.cli.manual import pages
from mailcore.cli.tree import command_tree, options_of, positionals_of
from tests.golden_files import Golden
from tests.test_tidy import ROOT

SHARE = ROOT / "share"
MANUAL = SHARE / "man" / "man1"


def test_every_file(golden: Golden) -> None:
    tree = command_tree(COMMANDS)
    made = pages(tree)
    for name, text in made.items():
        golden(name, text, below=MANUAL)
    assert (
        set(made)
        == {path.name for path in MANUAL.iterdir()}
        == {"waypost.1", *(f"waypost-{name}.1" for name in COMMANDS)}
    )
    golden("waypost", bash_script(tree), below=SHARE / "bash-completion" / "completions")
    golden("_waypost", zsh_script(tree), below=SHARE / "zsh" / "site-functions")


def test_the_wheel_has_every_file() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    packed = {path for patterns in listed.values() for pattern in patterns for path in ROOT.glob(pattern)}
    assert packed == {path for path in SHARE.rglob("*") if path.is_file()}
    assert all(
        path.relative_to(ROOT).parent == Path(to) for to, patterns in listed.items() for path in ROOT.glob(patterns[0])
    )


def test_a_page_names_every_option_and_argument() -> None:
    tree = command_tree(COMMANDS)
    made = {name: text.replace("\\-", "-") for name, text in pages(tree).items()}
    for command in tree.walk():
        text = made["-".join(command.words[:2]) + ".1"]
        for action in (*options_of(command), *positionals_of(command)):
            for option in set(action.option_strings) - {"-h", "--help", "--config", "--json"}:
                assert f"\\fB{option}\\fR" in text, f"{' '.join(command.words)} {option}"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed (Debian package man-db)")
@pytest.mark.parametrize("page", sorted(path.name for path in MANUAL.iterdir()))
def test_man_shows_a_page_without_a_warning(page: str) -> None:
    command = ["man", "--warnings", "--local-file", str(MANUAL / page)]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MAN_KEEP_STDERR": "1", "MANPAGER": "cat"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "been minimized" in done.stdout:
        pytest.skip("this system has a man that shows no pages")
    assert (done.returncode, done.stderr) == (0, "")
    assert page.removesuffix(".1") in done.stdout


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed (Debian package mandoc)")
def test_mandoc_has_no_complaint() -> None:
    command = ["mandoc", "-T", "lint", "-W", "warning", *map(str, sorted(MANUAL.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # A page has no date: it would change with each release.
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


# -- waypost help


@pytest.mark.parametrize(
    "words", [(), ("queue",), ("queue", "list"), ("log", "dump"), ("lab",), ("help",)], ids=" ".join
)
def test_help_is_that_of_the_command(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *words]) == 0
    helped = capsys.readouterr()
    assert main([*words, "--help"]) == 0
    assert (helped.out, helped.err) == (capsys.readouterr().out, "")
    assert helped.out.startswith("usage: waypost")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("help qeue", "waypost: unknown command 'qeue'; did you mean 'queue'? See waypost --help.\n"),
        ("help queue lits", "waypost: queue: unknown command 'lits'; did you mean 'list'? See waypost queue --help.\n"),
        ("help status x", "waypost: status: unknown command 'x'. See waypost status --help.\n"),
    ],
)
def test_help_for_an_unknown_command_names_the_nearest(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr() == ("", message)
