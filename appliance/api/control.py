"""The operations of the control socket, one address each, for ``waypost --remote`` (docs/cli.md).

Laws
- Each operation has the scope and the role that the page with the same look or change needs; one that is not in ``RIGHTS`` is
  not there.
- A change is in the audit log before the core gets it, with user and token, and is done once for each Idempotency-Key.
- A private key, a password or a verifier goes to the core and nowhere else: the audit log says that there was one, and a fault
  of such a value does not repeat it.
- The answer has the frames of the core as they are: a value is the same on both ways. A fault of the core is a frame, too; JSON
  is an error of the portal, after which nothing was done, or ``outcome_unknown``.

Keeps law: audit-before-change, law: a-key-works-once, law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from appliance.accounts.roles import Role, may_read_bodies
from appliance.api.bodies import one_line
from appliance.api.errors import CONTENT_TYPE, STATUSES, ApiError
from appliance.api.operation import SCHEMAS, body_of, operation, whole
from appliance.api.scopes import Scope
from appliance.api.sending import bounded
from appliance.api.streams import check_room, streaming
from appliance.audit.models import Entry, Outcome
from appliance.audit.record import audited, ending, record
from appliance.common.door import as_outcome, async_door, door
from appliance.queue.body_views import ACTION as READ_BODY
from mailcore.control.client import ControlError, Refused
from mailcore.control.passage import FRAMES, INJECT
from mailcore.control.protocol.injection import InjectBeginArguments
from mailcore.control.protocol.operation import Operation
from mailcore.control.protocol.state import Ping
from mailcore.control.protocol.table import OPERATIONS, check
from mailcore.counted import counted
from mailcore.faults import Fault, FaultError
from mailcore.frames import Response, encode

__all__ = ["RIGHTS", "STREAMED"]

PATIENCE_S = 60.0  # for each part of a long answer; the core measures and counts before the first
WHY_MAX = 1_000
SUBJECT_IDS = 5  # queue ids that the audit log names
# Their parts tell the progress of minutes, or they wait for what happens: they are sent as they come, and hold no thread. The
# parts of others are sent together.
STREAMED = frozenset(("change_matching", "events", "simulate"))


@dataclass(frozen=True)
class Right:
    """The scope and the role of an operation; ``action``: of the audit log, "" for a look."""

    scope: Scope
    least: Role
    action: str = ""


_LOOK = Right(Scope.READ, Role.VIEWER)
_LOOKS = (
    "ages", "list_at", "outcomes", "size_at", "users",
    "certificates", "destinations", "disks", "events", "explain", "headers", "history", "kept", "kept_text", "kept_use", "list",
    "log", "nodes", "parameters", "ping",
    "positions", "processes", "resolve", "routes", "search", "service_times", "settings", "settings_history", "show", "size",
    "state", "transports", "working",
)  # fmt: skip
_CHANGES = (
    "add_recipients", "bounce", "change_matching", "delay", "delete", "hold", "release", "reroute", "retry", "undelete",
)  # fmt: skip
RIGHTS: dict[str, Right] = {
    **dict.fromkeys(_LOOKS, _LOOK),
    **{name: Right(Scope.QUEUE, Role.OPERATOR, f"queue.{name}") for name in _CHANGES},
    "check_changes": Right(Scope.TUNE, Role.OPERATOR),
    "simulate": Right(Scope.TUNE, Role.OPERATOR),
    "set": Right(Scope.TUNE, Role.OPERATOR, "tuning.set"),
    "transport_set": Right(Scope.TUNE, Role.OPERATOR, "tuning.set"),
    "node_order": Right(Scope.TUNE, Role.OPERATOR, "nodes.order"),
    "suspend": Right(Scope.TUNE, Role.OPERATOR, "destination.suspend"),
    "resume": Right(Scope.TUNE, Role.OPERATOR, "destination.resume"),
    "settings_change": Right(Scope.SETTINGS, Role.ADMINISTRATOR, "settings.change"),
    "settings_effects": Right(Scope.SETTINGS, Role.ADMINISTRATOR),
    "settings_return": Right(Scope.SETTINGS, Role.ADMINISTRATOR, "settings.change"),
    **{name: Right(Scope.SETTINGS, Role.ADMINISTRATOR, "kept") for name in ("kept_make", "kept_put", "kept_remove")},
    **{name: Right(Scope.USERS, Role.ADMINISTRATOR, "user") for name in ("user_put", "user_remove")},
    "data": Right(Scope.BODY, Role.VIEWER, READ_BODY),  # and the right to read bodies
}


# Arguments with a secret, and the ones whose text is too much for the audit log.
SECRET = frozenset(("key", "password", "verifier"))
LONG = frozenset(("text",))
MADE = {"certificate": "certificate.make", "request": "certificate.request", "dkim": "dkim.make"}
PUT = {"certificate": "certificate.add", "ca": "certificate.add", "map": "map.put"}


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request, or its first line."""

    arguments: dict[str, Any] = {}
    why: str = ""


def _asked(body: bytes) -> Asked:
    """Returns what a body asks. Raises ApiError."""
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ApiError(f"the body is not a request: {error}") from None
    try:
        one_line(asked.why)
    except ValueError as error:
        raise ApiError(f"why: {error}", argument="why") from None
    if len(asked.why) > WHY_MAX:
        raise ApiError(f"why: at most {WHY_MAX} characters are allowed", argument="why")
    return asked


def _answered(request: HttpRequest, known: Operation, right: Right) -> HttpResponseBase:
    """Returns the answer of the core to a request. Raises ApiError, ControlError."""
    asked = _asked(body_of(request))
    arguments = _checked(known.name, asked.arguments)
    if known.name == "data" and not may_read_bodies(request.user):
        record(request, READ_BODY, arguments.queue_id, outcome=Outcome.REFUSED, words="may not read bodies")
        raise PermissionDenied("this needs the permission to read bodies")
    if known.name in STREAMED:
        return _streamed(request, known, right, asked)
    with _entry(request, known, right, asked) as entry:
        frames, fault = _frames(_parts(request, known, asked))
        _note(entry, frames, fault)
    return _response(frames, fault)


def _checked(name: str, given: dict[str, Any]) -> Any:
    """Returns the arguments. Raises FaultError, which has no part of a secret."""
    try:
        return check(name, given)[1]
    except FaultError as error:
        first = error.fault.argument.partition(".")[0]
        if first not in SECRET:
            raise
        raise ApiError(f"{first}: a text of the length that is allowed is needed", argument=first) from None


def _parts(request: HttpRequest, known: Operation, asked: Asked) -> Generator[Any, None, None]:
    timeout_s = max(PATIENCE_S, settings.PORTAL.change_timeout_s)
    return door(request).parts(known.name, asked.arguments, why=asked.why, timeout_s=timeout_s)


def _frames(parts: Generator[Any, None, None]) -> tuple[list[Response], Fault | None]:
    """Returns the frames of an answer, and the fault with which it ended. Raises ControlError if the core did not answer."""
    frames: list[Response] = []
    try:
        frames = [Response(0, part, last=False) for part in parts]
    except Refused as error:
        if as_outcome(error) is not error:
            raise as_outcome(error) from error
        return [*frames, Response(0, None, error.fault)], error.fault
    return [*frames[:-1], Response(0, frames[-1].result)], None


def _response(frames: list[Response], fault: Fault | None) -> HttpResponse:
    """Returns the response: its status says what HTTP can say of the fault."""
    status = HTTPStatus.OK if fault is None or len(frames) > 1 else STATUSES[fault.code]
    return HttpResponse(b"".join(map(encode, frames)), status=status, content_type=FRAMES)


def _entry(
    request: HttpRequest, known: Operation, right: Right, asked: Asked
) -> contextlib.AbstractContextManager[Entry | None]:
    """Returns the entry in the audit log of a change; nothing for a look, and for a question before a change."""
    given = asked.arguments
    if not right.action or given.get("dry_run") or given.get("check"):
        return contextlib.nullcontext()
    return audited(request, _action(known.name, right, given), _subject(given), after=_told(given), why=asked.why)


def _action(name: str, right: Right, given: dict[str, Any]) -> str:
    """Returns the action as the pages name it."""
    match name:
        case "change_matching":
            return f"queue.{given['change']}"
        case "kept_make":
            return MADE[given["kind"]]
        case "kept_put":
            return PUT[given["kind"]]
        case "user_put":
            return "user.add" if given.get("new") else "user.change"
        case "kept_remove" | "user_remove":
            return f"{right.action}.remove"
    return right.action


def _told(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments as the audit log has them: of a secret that there was one, of a long text its length."""
    told = {name: "given" if value else "" for name, value in given.items() if name in SECRET}
    told |= {name: counted(len(value), "character") for name, value in given.items() if name in LONG}
    return given | told


def _subject(given: dict[str, Any]) -> str:
    """Returns what a change is about: the first of these that it has."""
    if ids := given.get("queue_ids"):
        more = f" and {len(ids) - SUBJECT_IDS} more" if len(ids) > SUBJECT_IDS else ""
        return ", ".join(ids[:SUBJECT_IDS]) + more
    if "parameter" in given:
        return f"{given.get('scope', given.get('transport')) or 'global'} {given['parameter']}"
    if "changes" in given:
        return ", ".join(".".join(each["key"]) for each in given["changes"])
    if "change" in given:
        return "messages that match"
    if names := given.get("names"):
        return ", ".join(names)
    if "selector" in given:
        return f"{given['selector']}._domainkey.{given.get('domain', '')}"
    return str(next((given[name] for name in ("queue_id", "destination", "to", "name", "file") if name in given), ""))


def _note(entry: Entry | None, frames: list[Response], fault: Fault | None) -> None:
    """Writes the result into the entry: a refusal of the core, or how much was changed."""
    if entry is None:
        return
    if fault is not None:
        entry.outcome, entry.words = Outcome.REFUSED, fault.message[:1000]
        return
    result = frames[-1].result if frames else None
    if not isinstance(result, dict):
        return
    if faults := result.get("faults"):
        words = "; ".join(f"{each['key']} {each['reason']}" for each in faults[:5])
        entry.outcome, entry.words = Outcome.REFUSED, words[:1000]
    elif isinstance(result.get("changed"), int):
        entry.words = counted(result["changed"], "message")
    elif isinstance(result.get("file"), str):
        entry.words = result["file"]


def _streamed(request: HttpRequest, known: Operation, right: Right, asked: Asked) -> StreamingHttpResponse:
    """Returns a response that lives as long as its reader: when the command ends, the core stops after its current step."""
    door(request).ask("ping", Ping)  # while there is a status to say that the core is away
    waits_for_events = known.name == "events" and bool(asked.arguments.get("wait_s"))
    if waits_for_events:
        check_room()
    stack = contextlib.ExitStack()
    entry = stack.enter_context(_entry(request, known, right, asked))
    who = request.user.get_username()

    async def frames() -> AsyncIterator[bytes]:
        async with ending(stack):
            waits: Response | None = None
            try:
                async with (
                    streaming() if waits_for_events else contextlib.nullcontext(),
                    async_door(who, PATIENCE_S) as core,
                    contextlib.aclosing(core.parts(known.name, asked.arguments, why=asked.why)) as parts,
                ):
                    async for part in parts:
                        if waits is not None:
                            yield encode(waits)
                        waits = Response(0, part, last=False)
                last = Response(0, waits.result if waits is not None else None)
                _note(entry, [last], None)
            except ControlError as error:
                if waits is not None:
                    yield encode(waits)
                last = Response(0, None, error.fault)
                _note(entry, [], error.fault)
                if entry is not None and not isinstance(error, Refused):
                    entry.outcome = Outcome.UNKNOWN
            yield encode(last)

    response = StreamingHttpResponse(frames(), content_type=FRAMES)
    response["X-Accel-Buffering"] = "no"
    return response


def _injected(request: HttpRequest) -> HttpResponseBase:
    """Hands in a message as ``waypost inject`` does: behind the first line of the body."""
    head, _, data = body_of(request).partition(b"\n")
    asked = _asked(head)
    _, arguments = check("inject_begin", asked.arguments)
    before = {"recipients": len(arguments.recipients), "size_bytes": len(data), "first": arguments.recipients[0]}
    with audited(request, "message.send", arguments.sender or "<>", before=before, why=asked.why) as entry:
        try:
            injected = door(request).inject_as(asked.arguments, data, why=asked.why)
        except Refused as error:
            frames, fault = [Response(0, None, error.fault)], error.fault
            _note(entry, frames, fault)
            return _response(frames, fault)
        entry.words = injected.queue_id
    return _response([Response(0, msgspec.to_builtins(injected))], None)


def _register(
    name: str, doc: str, right: Right, arguments: type, run: Callable[[HttpRequest], HttpResponseBase]
) -> None:
    """Makes an operation of the API for an operation of the core."""
    run.__name__ = run.__qualname__ = f"control_{name}"
    run.__doc__ = f"{doc[0].upper()}{doc[1:].rstrip('.')}. For `waypost --remote`."
    is_inject = name == INJECT
    kind = "application/octet-stream" if is_inject else CONTENT_TYPE
    schema: dict[str, Any] = {"type": "string", "format": "binary"}
    if not is_inject:
        schema = {
            "type": "object",
            "properties": {
                "arguments": {"$ref": SCHEMAS.format(name=arguments.__name__)},
                "why": {"type": "string", "maxLength": WHY_MAX},
            },
            "additionalProperties": False,
        }
    operation(
        "POST",
        f"/control/{name}",
        tag="Command line",
        scopes={right.scope},
        least=right.least,
        answer=bytes,
        kind=FRAMES,
        body=bounded if is_inject else whole,
        types=() if is_inject else (arguments,),
        extra={"requestBody": {"required": True, "content": {kind: {"schema": schema}}}},
    )(run)


def _runner(known: Operation, right: Right) -> Callable[[HttpRequest], HttpResponseBase]:
    def run(request: HttpRequest) -> HttpResponseBase:
        return _answered(request, known, right)

    return run


for _name, _right in sorted(RIGHTS.items()):
    _known = OPERATIONS[_name]
    _register(_name, _known.doc, _right, _known.arguments, _runner(_known, _right))
_register(
    INJECT,
    "Hands in a message: one line of JSON with arguments and why, then the message",
    Right(Scope.SEND, Role.OPERATOR, "message.send"),
    InjectBeginArguments,
    _injected,
)
