"""Answers the operations about the users who log in to send mail: reads and changes them, as ``waypost user`` does.

A change is in force within a second, because receivers read the file when it changes. Passwords become verifiers here; neither
is in any answer or log.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from mailcore.config.settings import Settings
from mailcore.config.shared_settings import USERS, Shared, trouble_in
from mailcore.control.changing_users import change_users
from mailcore.control.operations import Answers
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.settings import KeyFault
from mailcore.control.protocol.users import KnownUser, UserChanged, UserPutArguments, UserRemoveArguments, Users
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.users.scram import SALT_BYTES
from mailcore.users.user import User, check_user, name_of, sender_pattern
from mailcore.users.user_file import UserFileError, read_users
from mailcore.users.verifier import argon2_verifier, is_scram, scram_verifier

__all__ = ["PASSWORD_MIN", "MailUsers", "revision_of_user"]

PASSWORD_MIN = 8  # characters, NIST SP 800-63B 5.1.1.2


class NotChanged(FaultError):
    """A user that can't be changed."""

    default = Code.CONFLICT


class _Wrong(ValueError):
    """A value of an argument; ``argument`` names it."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


class MailUsers:
    """Answers the operations about users. ``shared``: what all nodes have once; None without a database."""

    def __init__(self, view: View, settings: Settings, shared: Shared | None = None) -> None:
        self._view = view
        self._settings = settings
        self._shared = shared
        self.answers: dict[str, Answers] = {
            "users": self._list,
            "user_put": self._put,
            "user_remove": self._remove,
        }

    async def _list(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._known)

    async def _put(self, session: Session, arguments: UserPutArguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._changed, session, arguments)

    async def _remove(self, session: Session, arguments: UserRemoveArguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._removed, session, arguments)

    # -- in threads

    def _known(self) -> Users:
        faults: Sequence[str] = ()
        try:
            users = read_users(self._settings.users_file)
        except UserFileError as error:
            if error.usable is None:
                raise NotChanged(str(error), code=Code.UNAVAILABLE) from None
            users, faults = error.usable, str(error).splitlines()
        auth = self._settings.auth
        return Users(
            users=[_shown(user) for user in users],
            messages_per_hour=auth.messages_per_hour,
            recipients_per_hour=auth.recipients_per_hour,
            mechanisms=users.mechanisms,
            listeners=[each.address for each in self._settings.all_listeners if each.auth != "off"],
            faults=list(faults),
            nodes=self._trouble(),
        )

    def _trouble(self) -> str:
        return "" if self._shared is None else trouble_in(self._settings.node_run_directory, (USERS,), time.time())

    def _changed(self, session: Session, arguments: UserPutArguments) -> UserChanged:
        def put(users: dict[str, User]) -> User:
            user = users[name] = _after(users, name, arguments, dict(fields))
            return user

        try:
            name, fields = _name(arguments.name), _fields(arguments)
        except _Wrong as wrong:
            return UserChanged(faults=[KeyFault(key=wrong.argument, reason=str(wrong))])
        return self._change(session, put)

    def _removed(self, session: Session, arguments: UserRemoveArguments) -> UserChanged:
        def remove(users: dict[str, User]) -> User:
            return users.pop(_there(users, _name(arguments.name), arguments.revision).name)

        return self._change(session, remove)

    def _change(self, session: Session, edit: Callable[[dict[str, User]], User]) -> UserChanged:
        try:
            user = change_users(self._settings, self._shared, edit, session.who, session.why)
        except _Wrong as wrong:
            return UserChanged(faults=[KeyFault(key=wrong.argument, reason=str(wrong))])
        except UserFileError as error:
            raise NotChanged(f"{error}; correct the file first") from None
        return UserChanged(faults=[], user=_shown(user))


def _after(users: dict[str, User], name: str, arguments: UserPutArguments, fields: dict[str, Any]) -> User:
    """Returns the user after the change. Raises _Wrong and NotChanged."""
    if arguments.new:
        if name in users:
            raise _Wrong("name", f"must be another one; {name} exists already")
        if "verifier" not in fields:
            raise _Wrong("password", f"must be given, with {PASSWORD_MIN} characters or more")
        if "senders" not in fields:
            if "@" not in name:
                raise _Wrong("senders", "must be given: the addresses that the user sends from, or any")
            fields["senders"] = (sender_pattern(name),)
        user = User(name=name, **fields)
    else:
        user = msgspec.structs.replace(_there(users, name, arguments.revision), **fields)
    try:
        check_user(user)
    except ValueError as error:
        raise _Wrong("verifier" if arguments.verifier else "senders", str(error)) from None
    return user


def _there(users: dict[str, User], name: str, revision: str) -> User:
    """Raises NotChanged."""
    if name not in users:
        raise NotChanged(f"user {name} does not exist", code=Code.NOT_FOUND)
    if revision and revision_of_user(users[name]) != revision:
        raise NotChanged(f"user {name} was changed meanwhile, by another operator or in the file; look again")
    return users[name]


def _fields(arguments: UserPutArguments) -> dict[str, Any]:
    """Returns the fields of the user that are given. Raises _Wrong."""
    fields: dict[str, Any] = {
        field: getattr(arguments, field)
        for field in ("enabled", "messages_per_hour", "recipients_per_hour")
        if getattr(arguments, field) is not UNSET
    }
    if not isinstance(arguments.senders, msgspec.UnsetType):
        try:
            fields["senders"] = tuple(dict.fromkeys(sender_pattern(each) for each in arguments.senders))
        except ValueError as error:
            raise _Wrong("senders", str(error)) from None
    if arguments.verifier:
        fields["verifier"] = arguments.verifier
    elif arguments.password:
        fields["verifier"] = _verifier(arguments.password, scram=arguments.scram)
    return fields


def _verifier(password: str, *, scram: bool) -> str:
    if len(password) < PASSWORD_MIN:
        raise _Wrong("password", f"must have {PASSWORD_MIN} characters or more")
    try:
        return scram_verifier(password, secrets.token_bytes(SALT_BYTES)) if scram else argon2_verifier(password)
    except ValueError as error:
        raise _Wrong("password", str(error)) from None


def _name(text: str) -> str:
    try:
        return name_of(text)
    except ValueError as error:
        raise _Wrong("name", str(error)) from None


def revision_of_user(user: User) -> str:
    """Returns a short name of a user's state; another password is another state."""
    return hashlib.sha256(msgspec.json.encode(user)).hexdigest()[:16]


def _shown(user: User) -> KnownUser:
    return KnownUser(
        name=user.name,
        enabled=user.enabled,
        verifier="scram-sha-256" if is_scram(user.verifier) else "argon2id",
        senders=list(user.senders),
        revision=revision_of_user(user),
        messages_per_hour=user.messages_per_hour,
        recipients_per_hour=user.recipients_per_hour,
    )
