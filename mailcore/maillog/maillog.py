"""The mail log: one function per event, each writes one line in Postfix's form and one JSON object.

``mail.log`` is read by people and by pflogsumm (``--syslog-name=waypost``); ``mail.jsonl`` by programs, with the same
names for the same things. docs/log.md shows each line. Each family of events has a file: ``mail_lines.py`` and so on.

Laws
- Text from outside goes through ``mailcore.maillog.text`` only.
- Must not know: queue, scheduler, processes. Their callers pass it what it writes.
"""

from __future__ import annotations

from mailcore.maillog.disk_lines import DiskLines
from mailcore.maillog.header_lines import HeaderLines
from mailcore.maillog.login_lines import LoginLines
from mailcore.maillog.mail_lines import MailLines
from mailcore.maillog.milter_lines import MilterLines
from mailcore.maillog.operator_lines import OperatorLines
from mailcore.maillog.process_lines import ProcessLines
from mailcore.maillog.receiver_lines import ReceiverLines
from mailcore.maillog.recipient_lines import RecipientLines
from mailcore.maillog.route_lines import RouteLines
from mailcore.maillog.tlsrpt_lines import TlsrptLines
from mailcore.maillog.trace_lines import TraceLines

__all__ = ["MailLog"]


class MailLog(
    MailLines,
    OperatorLines,
    ProcessLines,
    DiskLines,
    ReceiverLines,
    RecipientLines,
    RouteLines,
    LoginLines,
    MilterLines,
    HeaderLines,
    TlsrptLines,
    TraceLines,
):
    """The log of one process."""
