"""`waypost dkim new` and `check`, against a real name server."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.cli.main import main
from tests.routing.nameserver import name_server

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def made(said: Said, directory: Path, selector: str, *more: str) -> tuple[str, str]:
    """Makes a key; its record in the form of a zone file, and its section of the configuration file."""
    code, out, err = said("dkim", "new", "Example.org", selector, "--key", directory / f"{selector}.pem", *more)
    assert (code, err) == (0, "")
    record = re.search(r"^    (\S+\._domainkey\.example\.org\. IN TXT .*)$", out, re.MULTILINE)
    assert record
    return record[1], "\n".join(line[4:] for line in out.splitlines()[-6:-2]) + "\n"


def configured(directory: Path, port: int, sections: str) -> Path:
    config = directory / "waypost.toml"
    config.write_text(f'home = "{directory}/home"\n[deliverer]\nnameservers = ["127.0.0.1:{port}"]\n{sections}')
    return config


def test_a_key_is_made_for_its_user_alone_and_never_overwritten(said: Said, tmp_path: Path) -> None:
    record, section = made(said, tmp_path, "2026a")
    file = tmp_path / "2026a.pem"
    assert stat.S_IMODE(file.stat().st_mode) & 0o027 == 0
    assert f'key = "{file}"' in section
    assert all(len(each) <= 255 for each in re.findall(r'"([^"]*)"', record))
    before = file.read_bytes()
    code, _, err = said("dkim", "new", "example.org", "2026a", "--key", file)
    assert code == 2
    assert "never overwritten" in err
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "arguments", [("no domain", "a"), ("example.org", "a b"), ("example.org", ""), ("", "a"), ("example.org", "a" * 64)]
)
def test_a_name_that_is_none_is_refused(said: Said, tmp_path: Path, arguments: tuple[str, str]) -> None:
    code, _, err = said("dkim", "new", *arguments, "--key", tmp_path / "key.pem")
    assert code == 2
    assert err.count("\n") == 1
    assert not (tmp_path / "key.pem").exists()


def test_keys_are_compared_with_their_records(said: Said, tmp_path: Path) -> None:
    good, good_section = made(said, tmp_path, "good")
    edwards, edwards_section = made(said, tmp_path, "edwards", "--algorithm", "ed25519")
    other, other_section = made(said, tmp_path, "other")
    _, missing_section = made(said, tmp_path, "missing")
    _, revoked_section = made(said, tmp_path, "revoked")
    _, broken_section = made(said, tmp_path, "broken")
    (tmp_path / "broken.pem").write_bytes(b"")
    (tmp_path / "other.pem").write_bytes((tmp_path / "good.pem").read_bytes())
    records = [good, edwards, other, 'revoked._domainkey.example.org. IN TXT "v=DKIM1; p="']
    sections = [good_section, edwards_section, other_section, missing_section, revoked_section, broken_section]
    with name_server(tmp_path, {"example.org": "\n".join(records) + "\n"}) as server:
        config = tmp_path / "waypost.toml"
        config.write_text(
            f'home = "{tmp_path}/home"\n[deliverer]\nnameservers = ["127.0.0.1:{server.port}"]\n' + "".join(sections)
        )
        code, out, _ = said("dkim", "check", "--json", "--config", config)
        assert code == 1
        states = {line["selector"]: line["state"] for line in map(json.loads, out.splitlines()) if "selector" in line}
        assert states == {
            "good": "ok", "edwards": "ok", "other": "other_key", "missing": "no_record", "revoked": "revoked",
            "broken": "key_unusable",
        }  # fmt: skip
        config.write_text(config.read_text().partition("[[dkim]]")[0] + good_section + edwards_section)
        code, out, _ = said("dkim", "check", "--config", config)
        assert code == 0
        assert out.count(" ok") == 2


@pytest.mark.parametrize(
    ("change", "state", "about"),
    [
        (("k=ed25519; ", ""), "not_valid", "the key is of another algorithm"),
        (("p=", "s=tlsrpt; p="), "not_valid", "the key is not for mail"),
        (("p=", "h=sha1; p="), "not_valid", "the key is not for this hash"),
        (("v=DKIM1", "v=DKIM2"), "not_valid", "the record is not a key"),
        (("p=", "k=ed25519; p="), "not_valid", "the key record has an error"),
        (("p=", "s=email\\; t=s; p="), "ok", ""),
        (("v=DKIM1; k=ed25519", "k=ed25519; v=DKIM1"), "not_valid", "v= is not the first tag"),
        (("p=", "t=y:s; p="), "testing", "servers take the mail as unsigned"),
    ],
)
def test_a_record_that_no_server_takes_is_not_valid(
    said: Said, tmp_path: Path, change: tuple[str, str], state: str, about: str
) -> None:
    record, section = made(said, tmp_path, "edwards", "--algorithm", "ed25519")
    assert change[0] in record
    with name_server(tmp_path, {"example.org": record.replace(*change) + "\n"}) as server:
        config = configured(tmp_path, server.port, section)
        code, out, _ = said("dkim", "check", "--json", "--config", config)
    found = json.loads(out.splitlines()[0])
    assert (code, found["state"]) == (0 if state == "ok" else 1, state)
    assert about in found["about"]


def test_the_key_of_arc_is_checked_as_well(said: Said, tmp_path: Path) -> None:
    record, section = made(said, tmp_path, "seal")
    edwards, _ = made(said, tmp_path, "edwards", "--algorithm", "ed25519")
    arc = '[authenticity]\nevaluate = "mx"\n' + section.replace("[[dkim]]", "[arc]")
    with name_server(tmp_path, {"example.org": f"{record}\n{edwards}\n"}) as server:
        config = configured(tmp_path, server.port, arc)
        code, out, _ = said("dkim", "check", "--json", "--config", config)
        found = json.loads(out.splitlines()[0])
        assert (code, found["section"], found["selector"], found["state"]) == (0, "arc", "seal", "ok")
        configured(tmp_path, server.port, arc.replace("seal", "edwards"))
        code, out, _ = said("dkim", "check", "--config", config)
        assert code == 1
        assert "must be a key for rsa-sha256" in out
        configured(tmp_path, server.port, arc.replace('"seal"', '"other"'))
        code, out, _ = said("dkim", "check", "--config", config)
        assert code == 1
        assert "no_record" in out


def test_without_keys_it_says_how_to_make_one(said: Said, tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'home = "{tmp_path}/home"\n')
    code, _, err = said("dkim", "check", "--config", config)
    assert code == 1
    assert "waypost dkim new" in err


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ('domain = "example.org"\nselector = "a"\n', "key must be set"),
        ('domain = "example.org"\nselector = "a"\nkey = "none.pem"\n', "must be a file that can be read: No such file"),
        ('domain = "x"\nselector = "a"\nkey = "none.pem"\n', "must be a domain"),
        ('domain = "example.org"\nselector = "a b"\nkey = "none.pem"\n', "must be letters, digits and hyphens"),
    ],
)
def test_a_section_with_a_fault_names_its_line(said: Said, tmp_path: Path, section: str, reason: str) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'home = "{tmp_path}/home"\n[[dkim]]\n{section}')
    code, out, err = said("check-config", "--config", config)
    assert code != 0
    assert reason in out + err
    assert re.search(r"waypost\.toml:[2-5]: ", out + err), out + err
