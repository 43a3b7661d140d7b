"""Defines the operations about the users who log in to send mail (``mailcore.users``). No answer has a verifier."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result
from mailcore.control.protocol.settings import KeyFault

__all__ = ["OPERATIONS", "KnownUser", "UserChanged", "UserPutArguments", "UserRemoveArguments", "Users"]

LIMIT_MAX = 100_000_000  # the bound of [auth]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Sender = Annotated[str, Meta(min_length=1, max_length=320)]
Limit = Annotated[int, Meta(ge=0, le=LIMIT_MAX)]
Revision = Annotated[str, Meta(max_length=16)]


class UserPutArguments(Arguments, frozen=True, kw_only=True):
    """A user that is added, or whose fields that are given become others.

    ``revision``: the one that a change was made for; "": of any. ``password`` or ``verifier``: what a new user needs.
    """

    name: Name
    new: bool = False
    revision: Revision = ""
    password: Annotated[str, Meta(max_length=1024)] = ""
    scram: bool = False  # keep a SCRAM-SHA-256 verifier of the password
    verifier: Annotated[str, Meta(max_length=1024)] = ""
    senders: Annotated[list[Sender], Meta(max_length=1000)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    messages_per_hour: Limit | UnsetType | None = UNSET
    recipients_per_hour: Limit | UnsetType | None = UNSET


class UserRemoveArguments(Arguments, frozen=True, kw_only=True):
    """A user that is removed."""

    name: Name
    revision: Revision = ""


class KnownUser(Result):
    """A user, without its verifier. None: the limit of [auth] is in force; 0: no limit."""

    name: str
    enabled: bool
    verifier: str  # its kind: argon2id or scram-sha-256
    senders: list[str]  # "*": any
    revision: str
    messages_per_hour: int | None = None
    recipients_per_hour: int | None = None


class Users(Result):
    """All users, with the limits of [auth].

    ``nodes``: why this node has other users than the database of the nodes, or may have.
    """

    users: list[KnownUser]
    messages_per_hour: int
    recipients_per_hour: int
    mechanisms: str  # that clients are offered
    listeners: list[str]  # addresses where users can log in
    faults: list[str] = []  # of lines of the file; then no user can be changed
    nodes: str = ""


class UserChanged(Result):
    """The user as it is now; or the faults, ``key`` is the argument, and then nothing was changed."""

    faults: list[KeyFault]
    user: KnownUser | None = None


_READ, _CHANGE, _CONTROL = Access.READ, Access.CHANGE, Answerer.CONTROL
OPERATIONS = (
    Operation("users", Arguments, _READ, _CONTROL, "List the users who log in to send mail.", Users),
    Operation("user_put", UserPutArguments, _CHANGE, _CONTROL, "Add or change a user, at once in force.", UserChanged),
    Operation("user_remove", UserRemoveArguments, _CHANGE, _CONTROL, "Remove a user.", UserChanged),
)
