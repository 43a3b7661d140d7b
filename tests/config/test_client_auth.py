"""[client_auth], checked at load with the file that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.load import ConfigError, load, load_text
from mailcore.config.settings import Settings
from mailcore.config.unchecked_logins import login_warnings

STRICT = '[transports.strict]\ntls = "verify"\n'
FAULTS = [
    (
        "[client_auth]\nmechanisms = ['CRAM-MD5']",
        "2: [client_auth] mechanisms must be a mechanism: XOAUTH2, PLAIN, LOGIN (got 'CRAM-MD5')",
    ),
    ("[client_auth]\nmechanisms = []", "2: [client_auth] mechanisms must have at least one value"),
    ("[client_auth]\npassword = 'x'", "2: [client_auth] password is not a setting here; did you mean 'password_file'?"),
]


@pytest.mark.parametrize(("text", "what"), FAULTS)
def test_a_fault_names_its_line(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_text(Path("/etc/waypost/waypost.toml"), text)
    assert what in str(error.value)


def test_check_config_checks_the_file_and_shows_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, passwords = tmp_path / "waypost.toml", tmp_path / "passwords"
    config.write_text(
        "[client_auth]\npassword_file = 'passwords'\nmechanisms = ['plain']\n[transports.smtp]\ntls = 'verify'\n"
    )

    def checked(text: str, mode: int = 0o600) -> tuple[int, str]:
        passwords.write_text(text)
        passwords.chmod(mode)
        status = main(["check-config", "--config", str(config)])
        output = capsys.readouterr()
        assert "hunter2" not in output.out + output.err
        return status, output.err

    assert checked("[mx.test]:587 joe:hunter2\n") == (0, "")
    assert checked("[mx.test]:587 hunter2\n")[0] == 2
    said = checked("# a\n[mx.test]:587 joe:hunter2\n[mx.test]:587 joe:hunter2\n")[1]
    assert (
        f"2: [client_auth] password_file must be a file of logins: {passwords}:3: must not have [mx.test]:587 twice"
        in said
    )
    assert "has mode 0644, so every user of this host can open it" in checked("", 0o644)[1]
    token = tmp_path / "token"
    token.write_text("hunter2")
    token.chmod(0o644)
    assert f"{token}: has mode 0644" in checked("mx.test xoauth2 joe token\n")[1]
    passwords.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(config)


def test_the_settings_that_are_stored_have_the_path_only(tmp_path: Path) -> None:
    config, passwords = tmp_path / "waypost.toml", tmp_path / "passwords"
    config.write_text("[client_auth]\npassword_file = 'passwords'\n")
    passwords.write_text("[mx.test]:587 joe:hunter2\n")
    passwords.chmod(0o600)
    settings: Settings = load(config)
    assert settings.client_auth.password_file == str(passwords)
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("line", "more", "level"),
    [
        ("[mx.test]:587", "", "may"),
        ("[mx.test]:587", '[tls_policy."[mx.test]:587"]\nlevel = "verify"\n', ""),
        ("[mx.test]:587", '[tls_policy."[mx.test]"]\nlevel = "encrypt"\n', "encrypt"),
        ("[mx.test]:587", '[tls_policy.".test"]\nlevel = "dane-only"\n', ""),
        ("mx.test", '[transports.smtp]\ntls = "mta-sts"\n', ""),
        ("mx.test", '[routes]\n"a.test" = "strict:mx.test"\n[transports.strict]\ntls = "verify"\n', ""),
        (
            "mx.test",
            '[routes]\n"a.test" = "strict:mx.test"\n"b.test" = "smtp:mx.test"\n[transports.strict]\ntls = "verify"\n',
            "may",
        ),
        ("[mx.test]", '[transports.strict]\ntls = "none"\nfallback_relay = ["[mx.test]"]\n', "none"),
        ("[mx.test]", '[routes]\n"*" = "error:5.7.1 no"\n', ""),
    ],
)
def test_a_login_towards_a_next_hop_that_is_not_checked_is_warned_of(
    tmp_path: Path, line: str, more: str, level: str
) -> None:
    config, passwords = tmp_path / "waypost.toml", tmp_path / "passwords"
    passwords.write_text(f"{line} joe:hunter2\n")
    passwords.chmod(0o600)
    for setting, effect in (
        ("", "its mail is deferred (4.7.11)"),
        ("without_verification = true\n", "any server that answers in its place gets the password"),
    ):
        config.write_text(f"[client_auth]\npassword_file = 'passwords'\n{setting}{more}")
        said = list(login_warnings(load(config)))
        words = f"[client_auth] password_file: {line} has the level {level}, which checks no certificate, so {effect}; "
        assert said == ([words + f'set [tls_policy."{line}"] level = "verify"'] if level else [])


@pytest.mark.parametrize(
    ("table", "written"),
    [
        ("routes", "a.test strict:[mx.test]"),
        ("fallback_relay", "strict:a.test [mx.test]"),
        ("routes", "a.test nowhere"),
    ],
)
def test_a_login_for_a_next_hop_of_a_file_is_that_of_its_transport(tmp_path: Path, table: str, written: str) -> None:
    config, passwords = tmp_path / "waypost.toml", tmp_path / "passwords"
    passwords.write_text("[mx.test] joe:hunter2\n")
    passwords.chmod(0o600)
    (tmp_path / "map").write_text(f"{written}\n")
    config.write_text(
        f"[client_auth]\npassword_file = 'passwords'\n[route_maps]\n{table} = ['map']\n"
        "[transports.strict]\ntls = 'verify'\n"
    )
    warned = len(list(login_warnings(load(config))))
    assert warned == (written.endswith("nowhere"))  # then it is that of "*"
