"""One milter in one SMTP session: its state, and what is sent at each step.

Laws
- A failure is an outcome, never an exception for the session: the filter is then closed, and its ``default_action`` decides
  from there on.
- A change is made only if the filter has negotiated it. Of a filter that fails, no change stays.

Keeps law: milter-fails-safely, law: milter-changes-whole (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping

from mailcore.config.milters import Milter
from mailcore.counted import counted
from mailcore.milter.agreement import NOTHING, agreement
from mailcore.milter.away import Away
from mailcore.milter.body import Stuffing, Unstuffing
from mailcore.milter.connection import Connection, MilterFailed, connect
from mailcore.milter.decision import (
    DEFAULT_DECISIONS,
    DISCARD,
    REJECT,
    SHUTDOWN,
    TEMPFAIL,
    Decision,
    Kind,
    read_reply,
)
from mailcore.milter.fields import BadChange
from mailcore.milter.macros import macros_of
from mailcore.milter.message import BodyWriter, Change, Message
from mailcore.milter.protocol import (
    BODY_BYTES_MAX,
    BadPacket,
    Packet,
    Reply,
    Step,
    header_packets,
    numbered,
    packet,
    read_negotiation,
    texts,
    write_negotiation,
)

__all__ = ["Filter"]

CHANGES_MAX = 10_000  # of one message
CHANGED_BYTES_MAX = 4 << 20  # of header and envelope; a body has the limit of the message
_NO_DATA = (Reply.CONTINUE, Reply.ACCEPT, Reply.REJECT, Reply.TEMPFAIL, Reply.DISCARD, Reply.SHUTDOWN, Reply.SKIP)
_CONTINUE = int(Reply.CONTINUE)
_OF_MESSAGE = (Step.MAIL, Step.RCPT, Step.DATA)  # a filter that leaves out MAIL hears of a message by a later one


class _State(enum.Enum):
    NEW = enum.auto()
    OPEN = enum.auto()
    MESSAGE_ACCEPTED = enum.auto()  # no more steps for this message
    SETTLED = enum.auto()  # no more steps for this session: accepted, refused, or failed


class Filter:
    """A milter in a session. ``failed`` is called with the stage and what happened, for the log.

    ``away`` remembers the milters that other sessions waited for in vain; None: this session waits.
    """

    def __init__(self, settings: Milter, failed: Callable[[Milter, str, str], None], away: Away | None = None) -> None:
        self.settings = settings
        self._failed = failed
        self._away = away
        self._connection: Connection | None = None
        self._agreed = NOTHING
        self._state = _State.NEW
        self._decision: Decision | None = None  # that stays for the session
        self._in_message = False  # a step of a message came, and neither the end of its body nor ABORT
        # An answer in its own time is in time for the message, too.
        self._message_s = max(settings.message_timeout_s, settings.command_timeout_s, settings.content_timeout_s)

    # -- the session

    async def open(self) -> None:
        """Connects and negotiates, unless the milter is not to be waited for."""
        settings, away = self.settings, self._away
        if away is None:
            await self._open()
            return
        if why_not := away.why_not(settings.address):
            self._give_up("CONNECT", MilterFailed(why_not))
            return
        began, failed = away.clock(), None
        try:
            failed = not await self._open()
        finally:  # also if the client has gone
            away.ended(settings.address, began, settings.connect_timeout_s, failed=failed)

    async def _open(self) -> bool:
        settings = self.settings
        try:
            self._connection = await connect(settings.address, settings.connect_timeout_s)
            self._connection.allow(self._message_s)
            self._connection.send(write_negotiation())
            answer = await self._connection.receive(settings.connect_timeout_s)
            self._agreed = agreement(read_negotiation(answer))
        except (MilterFailed, BadPacket) as error:
            self._give_up("CONNECT", error)
            return False
        self._state = _State.OPEN
        return True

    def wants(self, step: Step) -> bool:
        """Returns whether the filter has anything to do or say at this step."""
        if self._state is _State.OPEN:
            return self._agreed.plans[step].is_sent
        return self._state is not _State.MESSAGE_ACCEPTED and self._decision is not None

    @property
    def wants_refused(self) -> bool:
        """Returns whether the filter sees recipients that we refuse."""
        return self._agreed.refused_recipients and self.wants(Step.RCPT)

    def answers(self, step: Step) -> bool:
        """Returns whether the filter must be waited for at this step."""
        if self._state is not _State.OPEN:
            return False
        plan = self._agreed.plans[step]
        return plan.is_sent and plan.is_answered

    @property
    def refusal(self) -> Decision | None:
        """Returns the decision that stays for the session, if it has one."""
        return self._decision

    async def command(self, step: Step, values: Mapping[str, str], *parts: bytes) -> Decision | None:
        """Sends a step of the session or of the envelope; returns a decision, or None to continue."""
        if not self.answers(step):
            return self.tell(step, values, *parts)
        if step in _OF_MESSAGE:
            self._begin_message()
        try:
            return await self._event(step, values, parts, self.settings.command_timeout_s)
        except (MilterFailed, BadPacket) as error:
            return self._give_up(step.name, error)

    def tell(self, step: Step, values: Mapping[str, str], *parts: bytes) -> Decision | None:
        """Sends a step that the filter does not answer; returns the decision that stays for the session, or None."""
        if self._state is not _State.OPEN:
            return self._decision if self._state is _State.SETTLED else None
        if step in _OF_MESSAGE:
            self._begin_message()
        plan = self._agreed.plans[step]
        if plan.is_sent:
            try:
                self._idle_connection().put(macros_of(step, plan.names, values) + packet(step, *parts))
            except MilterFailed as error:
                return self._give_up(step.name, error)
        return None

    async def message(self, message: Message, values: Mapping[str, str]) -> Decision | None:
        """Sends the message, and makes the changes that the filter asks for."""
        if self._state is not _State.OPEN:
            return self._decision if self._state is _State.SETTLED else None
        self._begin_message()
        mark = message.mark()
        try:
            return await self._content(message, values)
        except (MilterFailed, BadPacket, BadChange) as error:
            message.undo(mark)  # half of its changes would make a message that it did not mean
            return self._give_up("END-OF-MESSAGE", error)
        except OSError as error:  # our disk: answers to what was asked are still on their way
            self._give_up("END-OF-MESSAGE", MilterFailed(f"was left because of our own disk: {error.strerror}"))
            raise

    def end_message(self) -> None:
        """Tells the filter that the message under way is over, unless it knows."""
        if self._state is _State.MESSAGE_ACCEPTED:
            self._state = _State.OPEN
        if self._state is _State.OPEN and self._in_message and self._connection is not None:
            try:
                self._connection.send(packet(Step.ABORT))
            except MilterFailed as error:
                self._give_up("ABORT", error)
        self._in_message = False
        if self._connection is not None:  # for commands between two messages
            self._connection.allow(self._message_s)

    def close(self) -> None:
        """Ends the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(packet(Step.QUIT))
        self._state = _State.SETTLED

    # -- a step

    def _begin_message(self) -> None:
        if not self._in_message and self._connection is not None:
            self._connection.allow(self._message_s)
        self._in_message = True

    def _is_open(self) -> bool:
        return self._state is _State.OPEN

    def _idle_connection(self) -> Connection:
        """Returns the connection, on which no answer may be waiting."""
        connection = self._connection
        assert connection is not None  # in state OPEN
        if connection.has_unread:
            raise MilterFailed("sent an answer that was not asked for")
        return connection

    async def _event(
        self, step: Step, values: Mapping[str, str], parts: tuple[bytes, ...], timeout_s: float
    ) -> Decision | None:
        plan = self._agreed.plans[step]
        if not plan.is_sent:
            return None
        packets = macros_of(step, plan.names, values) + packet(step, *parts)
        connection = self._idle_connection()
        if not plan.is_answered:
            connection.put(packets)
            return None
        connection.send(packets)
        return self._decided(step, await self._answer(timeout_s))

    async def _answer(self, timeout_s: float) -> Packet:
        connection = self._connection
        assert connection is not None
        while (answer := await connection.receive(timeout_s)).code == Reply.PROGRESS:
            if answer.data:
                raise MilterFailed("sent a packet of progress with data")
        return answer

    def _decided(self, step: Step, answer: Packet) -> Decision | None:
        code, data = answer
        if code == _CONTINUE and not data:
            return None
        if code in _NO_DATA and data:
            raise MilterFailed(f"answered {Reply(code).name} with {len(data)} bytes")
        of_session = step in (Step.CONNECT, Step.HELO)
        if code == Reply.SKIP and step is Step.BODY:
            return None
        if code == Reply.ACCEPT:
            if of_session:
                self._settle(None)
            else:
                self._state = _State.MESSAGE_ACCEPTED
            return None
        if code == Reply.SHUTDOWN:
            return self._settle(SHUTDOWN)
        decision = None
        if code == Reply.REJECT:
            decision = REJECT
        elif code == Reply.TEMPFAIL:
            decision = TEMPFAIL
        elif code == Reply.DISCARD and not of_session:
            self._state = _State.MESSAGE_ACCEPTED
            decision = DISCARD
        elif code == Reply.REPLY_CODE:
            reply = read_reply(data)
            if not reply:
                raise MilterFailed(f"gave a reply that is none of SMTP: {data[:80]!r}")
            decision = Decision(Kind.REFUSE, reply)
        if decision is None:
            raise MilterFailed(f"answered {step.name} with {_name(code)}, which is not allowed there")
        decision = decision._replace(milter=self.settings.address)
        return self._settle(decision) if of_session else decision

    def _settle(self, decision: Decision | None) -> Decision | None:
        """Closes the connection; the decision stays for the session."""
        if decision is not None:
            decision = decision._replace(milter=self.settings.address)
        self._decision = decision
        self.close()
        return decision

    def _give_up(self, stage: str, error: Exception) -> Decision | None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._failed(self.settings, stage, str(error))
        decision = self._settle(DEFAULT_DECISIONS[self.settings.default_action])
        if decision is not None and decision.kind is Kind.HOLD:
            self._decision = decision = decision._replace(reason=f"milter {self.settings.address} {error}")
        return decision

    # -- the message

    async def _content(self, message: Message, values: Mapping[str, str]) -> Decision | None:
        timeout_s, plans = self.settings.content_timeout_s, self._agreed.plans
        keep_space = self._agreed.keep_space
        fields = message.fields.shown(keep_space) if plans[Step.HEADER].is_sent else ()
        if fields and not plans[Step.HEADER].is_answered:
            self._idle_connection().put(header_packets(fields))
        else:
            for name, value in fields:
                decision = await self._event(Step.HEADER, values, (name, value), timeout_s)
                if decision is not None or not self._is_open():
                    return decision
        decision = await self._event(Step.END_OF_HEADER, values, (), timeout_s)
        if decision is not None or not self._is_open():
            return decision
        if plans[Step.BODY].is_sent:
            decision = await self._send_body(message, values, timeout_s)
            if decision is not None or not self._is_open():
                return decision
        names = plans[Step.END_OF_BODY].names
        self._idle_connection().send(macros_of(Step.END_OF_BODY, names, values) + packet(Step.END_OF_BODY))
        decision = await self._changes(message, timeout_s, keep_space)
        self._in_message = False
        if self._state is _State.MESSAGE_ACCEPTED:
            self._state = _State.OPEN
        return decision

    async def _send_body(self, message: Message, values: Mapping[str, str], timeout_s: float) -> Decision | None:
        plain = Unstuffing()
        waiting = b""
        async with contextlib.aclosing(message.body.blocks()) as blocks:
            async for block in blocks:
                waiting += plain.feed(block)
                while len(waiting) >= BODY_BYTES_MAX:
                    chunk, waiting = waiting[:BODY_BYTES_MAX], waiting[BODY_BYTES_MAX:]
                    decision, more = await self._send_chunk(chunk, values, timeout_s)
                    if not more:
                        return decision
        waiting += plain.end()
        if waiting:
            decision, _ = await self._send_chunk(waiting, values, timeout_s)
            return decision
        return None

    async def _send_chunk(
        self, chunk: bytes, values: Mapping[str, str], timeout_s: float
    ) -> tuple[Decision | None, bool]:
        """Returns a decision, and whether the filter wants more of the body."""
        connection = self._idle_connection()
        if not self._agreed.plans[Step.BODY].is_answered:
            connection.put(packet(Step.BODY, chunk))
            await connection.drain(timeout_s)
            return None, True
        connection.send(packet(Step.BODY, chunk))
        answer = await self._answer(timeout_s)
        decision = self._decided(Step.BODY, answer)
        return decision, decision is None and answer.code == Reply.CONTINUE

    async def _changes(self, message: Message, timeout_s: float, keep_space: bool) -> Decision | None:
        """Makes the changes until the filter has decided."""
        body: BodyWriter | None = None
        stuffing = Stuffing()
        changes = changed_bytes = 0
        try:
            while True:
                answer = await self._answer(timeout_s)
                code, data = answer
                allowed = self._agreed.changes.get(code)
                if allowed is None:
                    decision = self._decided(Step.END_OF_BODY, answer)
                    if body is not None and decision is None:
                        await body.append(stuffing.end())
                        message.replace_body(body)
                        body = None
                    return decision
                if not allowed:
                    raise MilterFailed(f"wants {_name(code)}, which it has not negotiated")
                if code == Reply.REPLACE_BODY:
                    if body is None:
                        body = message.new_body()
                    await body.append(stuffing.feed(data))
                    continue
                changes += 1
                changed_bytes += len(data)
                if changes > CHANGES_MAX or changed_bytes > CHANGED_BYTES_MAX:
                    raise MilterFailed(f"wants more than {CHANGES_MAX} changes or {CHANGED_BYTES_MAX} bytes of them")
                self._change(message, Reply(code), data, keep_space)
        finally:
            if body is not None:
                body.close()

    def _change(self, message: Message, code: Reply, data: bytes, keep_space: bool) -> None:
        fields = message.fields
        if code in (Reply.INSERT_HEADER, Reply.CHANGE_HEADER):
            number, given = numbered(data)
            name, value = _exactly(given, 2, code)
            act = fields.insert if code is Reply.INSERT_HEADER else fields.change
            act(number, name, value, keep_space)
            return
        given = texts(data)
        if code is Reply.ADD_HEADER:
            name, value = _exactly(given, 2, code)
            fields.add(name, value, keep_space)
        elif code is Reply.QUARANTINE:
            (reason,) = _exactly(given, 1, code)
            message.hold(self.settings.address, reason.decode("utf-8", "replace"))
        elif code in (Reply.ADD_RECIPIENT, Reply.DELETE_RECIPIENT):
            (address,) = _exactly(given, 1, code)
            message.change(Change("add" if code is Reply.ADD_RECIPIENT else "delete", address))
        else:  # with or without parameters
            address, parameters = _exactly([*given, b""] if len(given) == 1 else given, 2, code)
            message.change(Change("sender" if code is Reply.CHANGE_SENDER else "add", address, parameters))


_REPLIES = frozenset(int(each) for each in Reply)


def _exactly(given: list[bytes], count: int, code: Reply) -> list[bytes]:
    if len(given) != count:
        raise BadPacket(f"sent {code.name} with {counted(len(given), 'text')} instead of {count}")
    return given


def _name(code: int) -> str:
    return Reply(code).name if code in _REPLIES else f"code {code}"
