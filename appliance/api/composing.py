"""Composes a message from its parts: header fields, text, HTML, attachments.

Law: no value of a request becomes more than it is: a line end or another control character in a field, in a file's name or in
a type is an error, so that it cannot begin a further field. Fields that describe the message's structure, or how it came here,
are made here and by the core, and cannot be given.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from typing import Annotated

from django.utils import timezone
from pydantic import AfterValidator, Field, StringConstraints

from appliance.api.bodies import ONE_LINE, Body, one_line
from appliance.api.errors import ApiError
from mailcore.control.protocol.operation import ENVELOPE_ADDRESS_MAX, WALL_CLOCK_MAX

__all__ = ["VARIABLE", "Mailbox", "MessageBody", "Sender", "composed"]

NAME = re.compile(r"[!-9;-~]{1,76}")  # RFC 5322 2.2: printable ASCII without the colon
TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,63}/[A-Za-z0-9!#$&^_.+-]{1,63}")  # RFC 6838 4.2
VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
VALUE_MAX = 10_000  # characters of a field; it is folded
HEADERS_MAX = 100
ATTACHMENTS_MAX = 100
ADDRESSES_MAX = 1_000  # shown in one field; the recipients of the envelope are apart
UNDISCLOSED = "undisclosed-recipients:;"  # RFC 5322 A.1.3
# Made here, or by what the message passes through.
RESERVED = frozenset(
    (
        "bcc", "cc", "content-disposition", "content-id", "content-length", "content-transfer-encoding", "content-type", "date",
        "delivered-to", "dkim-signature", "from", "message-id", "mime-version", "received", "resent-bcc", "return-path",
        "subject", "to",
    )
)  # fmt: skip
ALONE = frozenset(("reply-to", "in-reply-to", "references", "sender"))  # RFC 5322 3.6: once at most


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("a name of a field has 1 to 76 printable ASCII characters and no colon")
    if text.lower() in RESERVED or text.lower().startswith("content-"):
        raise ValueError("this field cannot be given here")
    return text


def _variable(text: str) -> str:
    if not VARIABLE.fullmatch(text):
        raise ValueError("a name of a variable has 1 to 64 letters, digits and _, and begins with a letter")
    return text


def _type(text: str) -> str:
    if not TYPE.fullmatch(text):
        raise ValueError("write type/subtype")
    if text.lower().partition("/")[0] in ("multipart", "message"):
        raise ValueError("an attachment is a file, and not a message")
    return text.lower()


def _mailbox(text: str) -> str:
    one_line(text)
    local, at, domain = text.rpartition("@")
    if not at or not local or not domain or any(character in text for character in " ,;<>()"):
        raise ValueError("write local@domain")
    return text


Sender = Annotated[str, StringConstraints(max_length=ENVELOPE_ADDRESS_MAX), AfterValidator(one_line), ONE_LINE]
Mailbox = Annotated[
    str,
    StringConstraints(min_length=3, max_length=ENVELOPE_ADDRESS_MAX),
    AfterValidator(_mailbox),
    Field(json_schema_extra={"format": "email"}),
]
Line = Annotated[str, StringConstraints(max_length=VALUE_MAX), AfterValidator(one_line), ONE_LINE]
VariableName = Annotated[str, AfterValidator(_variable)]
FieldName = Annotated[str, AfterValidator(_name)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(one_line), ONE_LINE]


class Person(Body):
    """An address of a field, with the name to show."""

    address: Mailbox
    name: Annotated[str, StringConstraints(max_length=200), AfterValidator(one_line), ONE_LINE] = ""


class Attachment(Body):
    """A file."""

    filename: FileName
    content_type: Annotated[str, AfterValidator(_type)] = "application/octet-stream"
    content: str = Field(description="the bytes in Base64")


People = Annotated[list[Person], Field(min_length=1, max_length=ADDRESSES_MAX)]


class MessageBody(Body):
    """A message: ``raw`` as it is, or its parts."""

    sender: Sender = Field(description='of the envelope; "" is the sender of bounces: none is returned')
    recipients: list[Mailbox] = Field(min_length=1, max_length=ADDRESSES_MAX, description="of the envelope")
    not_before: float | None = Field(
        default=None, gt=0, le=WALL_CLOCK_MAX, description="seconds since 1970; not delivered before"
    )
    raw: str | None = Field(
        default=None, min_length=1, description="the whole message, header and body; nothing else is given then"
    )
    from_: Person | None = Field(default=None, alias="from", description="without it, the sender")
    to: People | None = Field(
        default=None, description="without it, the recipient; of several recipients none is shown to the others"
    )
    cc: People | None = None
    subject: Line | None = None
    text: str | None = None
    html: str | None = None
    attachments: list[Attachment] | None = Field(default=None, max_length=ATTACHMENTS_MAX)
    headers: dict[FieldName, Line] | None = Field(
        default=None, max_length=HEADERS_MAX, description="further fields, by name"
    )
    variables: dict[str, dict[VariableName, str]] | None = Field(
        default=None,
        max_length=ADDRESSES_MAX,
        description="by recipient: values for {{ name }} in subject, headers, text and html; "
        "each recipient then gets a message of his own",
    )


PARTS = frozenset(MessageBody.model_fields) - {"sender", "recipients", "not_before", "raw", "variables"}
CONTENT = frozenset(("text", "html", "attachments", "subject"))


def composed(body: MessageBody) -> bytes:
    """Returns the message with CRLF line ends. Raises ApiError."""
    given = {name for name in PARTS if getattr(body, name) is not None}
    parts = sorted("from" if name == "from_" else name for name in given)
    if body.raw is not None:
        if parts:
            raise ApiError(f"raw and {parts[0]}: one of them is allowed", argument="raw")
        return body.raw.encode()
    if not given & CONTENT:
        raise ApiError("text: give raw, or text, html, attachments or a subject", argument="text")
    try:
        return _of_parts(body)
    except (ValueError, MessageError, LookupError) as error:
        raise ApiError(f"The message cannot be composed: {error}") from error


def _of_parts(body: MessageBody) -> bytes:
    message = EmailMessage(policy=SMTP)
    author = body.from_
    if author is None:
        if not body.sender:
            raise ApiError("from: a message without a sender needs it", argument="from")
        message["From"] = _addresses("sender", [Person(address=body.sender)])
    else:
        message["From"] = _addresses("from", [author])
    if body.to is not None:
        message["To"] = _addresses("to", body.to)
    elif len(body.recipients) == 1:
        message["To"] = _addresses("recipients", [Person(address=body.recipients[0])])
    else:
        message["To"] = UNDISCLOSED
    if body.cc is not None:
        message["Cc"] = _addresses("cc", body.cc)
    message["Subject"] = body.subject or ""
    message["Date"] = format_datetime(timezone.now())
    domain = (author.address if author is not None else body.sender).rpartition("@")[2]
    message["Message-ID"] = make_msgid(domain=domain.encode("idna").decode("ascii") if not domain.isascii() else domain)
    _add_fields(message, body.headers or {})
    if body.text is not None or body.html is None:
        message.set_content(body.text or "")
    if body.html is not None:
        if body.text is None:
            message.set_content(body.html, subtype="html")
        else:
            message.add_alternative(body.html, subtype="html")
    for at, each in enumerate(body.attachments or ()):
        main, _, subtype = each.content_type.partition("/")
        message.add_attachment(_content(at, each), maintype=main, subtype=subtype, filename=each.filename)
    return message.as_bytes()


def _add_fields(message: EmailMessage, headers: Mapping[str, str]) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        if name.lower() in seen:
            raise ApiError(f"headers.{name}: given twice", argument=f"headers.{name}"[:200])
        seen.add(name.lower())
        message[name] = value


def _addresses(argument: str, people: Sequence[Person]) -> list[Address]:
    found = []
    for at, each in enumerate(people):
        local, _, domain = each.address.rpartition("@")
        if not each.address.isascii():
            place = f"{argument}[{at}]"
            raise ApiError(
                f"{place}: an address of a composed message is ASCII; hand in others as message/rfc822", argument=place
            )
        found.append(Address(each.name, local, domain))
    return found


def _content(at: int, each: Attachment) -> bytes:
    try:
        return base64.b64decode(each.content, validate=True)
    except (binascii.Error, ValueError):
        place = f"attachments[{at}].content"
        raise ApiError(f"{place}: not Base64", argument=place) from None
