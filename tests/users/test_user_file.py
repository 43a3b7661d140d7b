"""The file of the users: replaced as a whole, private, and a fault names its line and costs no other user the login."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from mailcore.users.saslprep import saslprep
from mailcore.users.user import User, Users, check_user, name_of, sender_pattern
from mailcore.users.user_file import UserFileError, changing, read_users
from mailcore.users.verifier import DECOY, argon2_verifier, is_scram, matches, parse_verifier, scram_verifier

SALT = b"0123456789abcdef"


def alice(**more: object) -> User:
    return User(**{"name": "alice", "verifier": DECOY, "senders": ("alice@example.org",), **more})  # type: ignore[arg-type]


def written(path: Path, *users: User) -> None:
    with changing(path, path.parent) as known:
        known.clear()
        known.update({user.name: user for user in users})


def test_users_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    assert len(read_users(path)) == 0
    written(path, alice(), alice(name="bob", enabled=False, messages_per_hour=0))
    users = read_users(path)
    assert users.find("ALICE") == alice()
    assert users.find("bob") is None
    assert users.get("bob") == alice(name="bob", enabled=False, messages_per_hour=0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["users.jsonl"]


def test_the_key_of_made_up_salts_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    written(path, alice())
    first = read_users(path).scram_verifier("nobody")
    written(path, alice(), alice(name="carol"))
    assert read_users(path).scram_verifier("nobody").salt == first.salt
    assert read_users(path).scram_verifier("somebody").salt != first.salt


def test_an_exception_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    written(path, alice())
    before = path.read_bytes()

    def fail() -> None:
        with changing(path, tmp_path) as users:
            users.clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == before


def test_it_is_on_disk_before_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """law: users-replaced-atomically. The content, then the name, then the directory."""
    events: list[str] = []

    def sync(fd: int) -> None:
        events.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")

    replace = Path.replace

    def replaced(path: Path, target: Path) -> Path:
        events.append("replace")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replaced)
    written(tmp_path / "users.jsonl", alice())
    assert events == ["sync users.jsonl.new", "replace", f"sync {tmp_path.name}"]


def test_two_changes_at_once_are_both_there(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"

    def add(number: int) -> None:
        with changing(path, tmp_path) as users:
            users[f"u{number}"] = alice(name=f"u{number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(path)) == 20


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "truncated"),
        (b'{"name": "bob"}', "verifier"),
        (b'{"name": "bob", "verifier": "x"}', "verifier is neither"),
        (b'{"name": "Bob", "verifier": "' + DECOY.encode() + b'"}', "name must be in lower case"),
        (b'{"name": "b b", "verifier": "' + DECOY.encode() + b'"}', "name must be 1 to 128"),
        (b'{"name": "alice", "verifier": "' + DECOY.encode() + b'"}', "alice is there twice"),
        (b'{"name": "bob", "verifier": "' + DECOY.encode() + b'", "sender": []}', "unknown field"),
        (b'{"name": "bob", "verifier": "' + DECOY.encode() + b'", "senders": ["a b"]}', "senders: 'a b' must be"),
        (b'{"name": "bob", "verifier": "' + DECOY.encode() + b'", "messages_per_hour": -1}', "0 or more"),
        (b"\xff", "UTF-8|malformed|invalid"),
    ],
)
def test_a_fault_names_its_line_and_the_others_stay(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "users.jsonl"
    written(path, alice())
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(UserFileError, match=rf"users\.jsonl:3: .*({words})") as error:
        read_users(path)
    assert error.value.usable is not None
    assert error.value.usable.find("alice") == alice()
    assert error.value.usable.find("bob") is None
    assert "argon2id" not in str(error.value)
    with pytest.raises(UserFileError), changing(path, tmp_path):
        pass  # it is not written over
    assert path.read_bytes().endswith(line + b"\n")


@pytest.mark.parametrize(
    ("senders", "sender", "may"),
    [
        (("alice@example.org",), "alice@example.org", True),
        (("alice@example.org",), "Alice@EXAMPLE.org", True),
        (("alice@example.org",), "bob@example.org", False),
        (("alice@example.org",), "alice@sub.example.org", False),
        (("alice@example.org",), '"x"@evil.example,alice@example.org', False),
        (("example.org",), "bob@example.org", True),
        (("example.org",), "bob@sub.example.org", False),
        (("example.org",), "bob@notexample.org", False),
        ((".example.org",), "bob@a.b.example.org", True),
        ((".example.org",), "bob@example.org", False),
        (("*",), "bob@example.net", True),
        ((), "alice@example.org", False),
        ((), "", True),
        (("xn--mnchen-3ya.example",), "a@münchen.example", True),
    ],
)
def test_a_user_owns_addresses(senders: tuple[str, ...], sender: str, may: bool) -> None:
    assert alice(senders=senders).may_send_as(sender) is may


def test_patterns_have_one_spelling() -> None:
    assert [sender_pattern(each) for each in ("any", "A@Example.ORG", ".Example.org", "münchen.example")] == [
        "*", "a@example.org", ".example.org", "xn--mnchen-3ya.example",
    ]  # fmt: skip
    for wrong in ("", "a b@example.org", "@example.org", "example..org", "*@example.org@"):
        with pytest.raises(ValueError, match="must be an address"):
            sender_pattern(wrong)
    check_user(alice(senders=("*",)))
    assert name_of("Alice@Example.org") == "alice@example.org"


def test_passwords_are_checked() -> None:
    for verifier in (argon2_verifier("Pässwort ②"), scram_verifier("Pässwort ②", SALT)):
        parse_verifier(verifier)
        assert matches(verifier, "Pa\u0308sswort 2")  # another keyboard's letters
        assert not matches(verifier, "Passwort 2")
        assert not matches(verifier, "")
        assert not matches(verifier, "\x07")


def test_scram_is_offered_only_if_every_user_can_use_it() -> None:
    scram = alice(name="s", verifier=scram_verifier("secret", SALT))
    assert Users().mechanisms == "PLAIN LOGIN"
    assert Users([scram]).mechanisms == "SCRAM-SHA-256 PLAIN LOGIN"
    assert Users([scram, alice()]).mechanisms == "PLAIN LOGIN"
    assert Users([scram, alice(enabled=False)]).mechanisms == "SCRAM-SHA-256 PLAIN LOGIN"


def test_an_unknown_name_costs_as_much_as_a_known_one() -> None:
    scram = alice(name="s", verifier=scram_verifier("secret", SALT))
    assert is_scram(Users([scram]).decoy("unknown"))
    assert not is_scram(Users([alice()]).decoy("unknown"))
    assert not is_scram(Users().decoy("unknown"))
    made_up = Users([scram], b"key").scram_verifier("unknown")
    assert (made_up.iterations, len(made_up.salt)) == (100_000, 16)
    assert not made_up.matches("secret")


def test_saslprep_of_rfc_4013() -> None:
    assert saslprep("I\u00adX") == "IX"
    assert saslprep("user") == "user"
    assert saslprep("USER") == "USER"
    assert saslprep("\u00aa") == "a"
    assert saslprep("\u2168") == "IX"
    for wrong in ("\u0007", "\u0627\u0031"):
        with pytest.raises(ValueError, match=r"control|right to left"):
            saslprep(wrong)
