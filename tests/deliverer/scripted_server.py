"""An SMTP server that does what a test tells it, on a real socket, and remembers what it was told.

Every command is answered from ``answers`` by its verb, several answers one after the other, the last one for ever; what
has none gets the usual. DOT is the answer to the end of the data, LAST that to the last chunk, BDAT that to each other.
Not a mock: bytes go over loopback.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import enum
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Act(enum.Enum):
    SILENCE = "say nothing, and go on listening"
    HANG_UP = "close"
    RESET = "close with RST"
    GARBAGE = "go ahead with TLS, then talk nonsense"
    LOSE = "go ahead with TLS, then close"


Answer = bytes | Act
USUAL: dict[str, bytes] = {
    "GREETING": b"220 sink.example.org ESMTP\r\n",
    "HELO": b"250 sink.example.org\r\n",
    "MAIL": b"250 2.1.0 Ok\r\n",
    "RCPT": b"250 2.1.5 Ok\r\n",
    "DATA": b"354 End data with <CR><LF>.<CR><LF>\r\n",
    "DOT": b"250 2.0.0 Ok: queued as 4F\r\n",
    "BDAT": b"250 2.0.0 Ok: chunk taken\r\n",
    "LAST": b"250 2.0.0 Ok: queued as 4F\r\n",
    "RSET": b"250 2.0.0 Ok\r\n",
    "QUIT": b"221 2.0.0 Bye\r\n",
    "STARTTLS": b"220 2.0.0 Ready to start TLS\r\n",
}


@dataclass
class Message:
    """A message that got its dot, or its last chunk: the commands' arguments, the data as on the wire, without the dot."""

    sender: str
    recipients: list[str]
    data: bytes


@dataclass
class Session:
    lines: list[str] = field(default_factory=list)  # commands as they came; "." for the end of the data
    tls: bool = False
    user: str = ""  # after AUTH
    data_bytes: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    writer: asyncio.StreamWriter | None = None

    @property
    def verbs(self) -> list[str]:
        return [line.split(" ", 1)[0].split(":", 1)[0].upper() for line in self.lines]


class ScriptedServer:
    """``keywords`` is what EHLO offers; ``refuse`` answers single recipients. ``bursts`` are the commands of each read."""

    def __init__(
        self,
        answers: dict[str, Answer | list[Answer]] | None = None,
        *,
        keywords: tuple[str, ...] = ("PIPELINING", "SIZE 50000000", "8BITMIME", "SMTPUTF8"),
        refuse: dict[str, bytes] | None = None,
        tls: ssl.SSLContext | None = None,
        keep_data: bool = True,
        keywords_in_tls: tuple[str, ...] | None = None,
        users: dict[str, str] | None = None,
    ) -> None:
        self.answers = {
            verb: [answer] if not isinstance(answer, list) else answer for verb, answer in (answers or {}).items()
        }
        self.keywords = keywords
        self.refuse = refuse or {}
        self.tls = tls
        self.keep_data = keep_data
        self.keywords_in_tls = keywords if keywords_in_tls is None else keywords_in_tls
        self.users = users or {}  # name -> password or token: AUTH is answered by these
        self.sessions: list[Session] = []
        self.messages: list[Message] = []
        self.bursts: list[bytes] = []  # one entry for each time the socket had commands
        self.data_begun = asyncio.Event()
        self.data_chunk = 65_536
        self.data_go_on = asyncio.Event()  # cleared, the server stops reading data
        self.data_go_on.set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, address, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, verb: str, in_tls: bool = False) -> Answer:
        if verb in self.answers:
            answers = self.answers[verb]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if verb == "EHLO":
            lines = ["sink.example.org", *(self.keywords_in_tls if in_tls else self.keywords)]
            return "".join(f"250-{line}\r\n" for line in lines[:-1]).encode() + f"250 {lines[-1]}\r\n".encode()
        return USUAL.get(verb, b"502 5.5.2 Error: command not recognized\r\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        session = Session(writer=writer)
        self.sessions.append(session)
        try:
            await self._talk(reader, writer, session)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            session.ended.set()
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session) -> None:
        if not await self._say("GREETING", writer):
            return
        sender, recipients, chunks = "", list[str](), b""
        pending = b""
        while True:
            while b"\n" not in pending:
                burst = await reader.read(65_536)
                if not burst:
                    return
                self.bursts.append(burst)
                pending += burst
            line, pending = pending.split(b"\n", 1)
            command = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
            session.lines.append(command)
            verb = session.verbs[-1]
            if verb == "RCPT" and command[8:].strip("<>") in self.refuse:
                writer.write(self.refuse[command[8:].strip("<>")])
                continue
            go_ahead = self.answers.get("DATA", [b"354"])[0]
            if verb == "AUTH" and self.users and verb not in self.answers:
                await self._authenticate(command, reader, writer, session)
                continue
            if verb == "BDAT":
                chunk, pending = await self._chunk(reader, pending, int(command.split()[1]))
                chunks += chunk
                if command.endswith(" LAST"):
                    verb = "LAST"
                    self.messages.append(Message(sender, recipients, chunks))
            if not await self._say(verb, writer, session.tls):
                return
            if verb == "MAIL":
                sender, recipients, chunks = command[10:], [], b""
            elif verb == "RCPT":
                recipients.append(command[8:])
            elif verb == "QUIT":
                return
            elif verb == "DATA" and isinstance(go_ahead, bytes) and go_ahead.startswith(b"354"):
                data, pending = await self._receive(reader, session, pending)
                self.messages.append(Message(sender, recipients, data))
                session.lines.append(".")
                if not await self._say("DOT", writer):
                    return
            elif verb == "STARTTLS" and self.tls is not None:
                await writer.start_tls(self.tls)
                session.tls = True
                pending = b""

    async def _chunk(self, reader: asyncio.StreamReader, pending: bytes, length: int) -> tuple[bytes, bytes]:
        """The octets of a chunk, and what came behind them."""
        if len(pending) < length:
            pending += await reader.readexactly(length - len(pending))
        return pending[:length], pending[length:]

    async def _receive(self, reader: asyncio.StreamReader, session: Session, pending: bytes) -> tuple[bytes, bytes]:
        """Data up to the dot on a line of its own, and what came behind it."""
        self.data_begun.set()
        kept = bytearray()
        tail = b"\r\n"
        while True:
            await self.data_go_on.wait()
            session.data_bytes += len(pending)
            if self.keep_data:
                kept += pending
            tail += pending
            end = tail.find(b"\r\n.\r\n")
            if end >= 0:
                behind = tail[end + 5 :]
                if self.keep_data:
                    del kept[len(kept) - len(behind) - 3 :]
                return bytes(kept), behind
            tail = tail[-4:]
            pending = await reader.read(self.data_chunk)
            if not pending:
                raise ConnectionResetError

    async def _authenticate(
        self, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session
    ) -> None:
        """RFC 4954, and Google's XOAUTH2: a fault is a 334, and the 535 follows an empty line."""
        _, mechanism, *initial = command.split(" ")
        user, secret = "", ""
        if mechanism == "PLAIN":
            _, user, secret = base64.b64decode(initial[0]).decode().split("\0")
        elif mechanism == "XOAUTH2":
            fields = dict(each.split("=", 1) for each in base64.b64decode(initial[0]).decode().split("\1") if each)
            user, secret = fields["user"], fields["auth"].removeprefix("Bearer ")
        else:
            found = []
            for question in (b"VXNlcm5hbWU6", b"UGFzc3dvcmQ6"):
                writer.write(b"334 " + question + b"\r\n")
                found.append(base64.b64decode((await reader.readline()).strip()).decode())
            user, secret = found
        if self.users.get(user) == secret:
            session.user = user
            writer.write(b"235 2.7.0 Authentication successful\r\n")
            return
        if mechanism == "XOAUTH2":
            writer.write(b"334 eyJzdGF0dXMiOiI0MDEifQ==\r\n")
            assert (await reader.readline()).strip() == b""
        writer.write(f"535 5.7.8 Error: {mechanism} {user} {secret} {' '.join(initial)}\r\n".encode())

    async def _say(self, verb: str, writer: asyncio.StreamWriter, in_tls: bool = False) -> bool:
        """False when the conversation is over."""
        answer = self._answer(verb, in_tls)
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return True
        if answer is Act.SILENCE:
            return True
        if answer is Act.RESET:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        if answer in (Act.GARBAGE, Act.LOSE):
            writer.write(b"220 2.0.0 Ready to start TLS\r\n")
            await writer.drain()
        if answer is Act.GARBAGE:
            await asyncio.sleep(0.05)
            writer.write(b"this is no handshake\r\n")
            await writer.drain()
        return False


@contextlib.asynccontextmanager
async def serving(server: ScriptedServer, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[ScriptedServer]:
    await server.listen(address, port)
    try:
        yield server
    finally:
        await server.close()


def server_tls(directory: Path, name: str = "sink.example.org") -> ssl.SSLContext:
    """A context with a certificate signed by itself, which nobody trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))  # long over: opportunistic TLS does not mind
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
