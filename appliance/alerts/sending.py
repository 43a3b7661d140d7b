"""Sends notices: mail by SMTP to a mail server that is not this Waypost, and webhooks.

Laws
- Nothing here uses the queue, the core, Celery or Redis: what an alert is about must not keep it from being sent.
- Each attempt ends within ``TOTAL_S``, also with a server that sends a byte now and then.
- Untrusted text (names, replies) cannot become a header field or a line of its own.

Keeps law: alerts-do-without-the-queue (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import email.policy
import email.utils
import hashlib
import http.client
import json
import smtplib
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dns.exception
import dns.resolver
from django.template.loader import render_to_string

from appliance.alerts.book import Target
from appliance.alerts.models import Kind, Notice
from appliance.alerts.name_servers import own_resolver
from appliance.common.current_settings import current_settings
from appliance.common.own_names import host, sender_or_own, site
from appliance.common.posting import deadline, post, signed
from appliance.common.templatetags.waypost import visible
from mailcore.config.alerts import SAFE, Alerts
from mailcore.config.values import listen_address
from mailcore.counted import counted

__all__ = ["MAIL", "WEBHOOK", "NotSent", "send", "targets_of"]

MAIL, WEBHOOK = "mail", "webhook"
CONNECT_S = 10.0  # also for each read
TOTAL_S = 60.0
DNS_S = 10.0
SMTP_PORT = 25
HOSTS_MAX = 5  # of one domain
SECRET_BYTES_MAX = 4_096
ANSWER_CHARACTERS = 300
SUBJECT_CHARACTERS = 150
POLICY = email.policy.SMTP.clone(cte_type="7bit")  # so that any server takes it


class NotSent(Exception):
    """Says why a notice was not sent; it is tried again."""


def targets_of(settings: Alerts) -> list[Target]:
    """Returns the places that notices go to."""
    mail = [Target(MAIL, address) for address in dict.fromkeys(settings.recipients)]
    return [*mail, *([Target(WEBHOOK)] if settings.webhook else [])]


def send(target: Target, notices: Sequence[Notice], settings: Alerts, now: datetime) -> str:
    """Sends notices to one target, in one message or request; returns the answer. Raises NotSent."""
    try:
        if target.channel == WEBHOOK:
            return _post(settings, _document(notices, now), now)
        sender = sender_or_own(settings.sender)
        return _deliver(letter(target.address, sender, notices, now), sender, target.address, settings)
    except (OSError, smtplib.SMTPException, http.client.HTTPException, dns.exception.DNSException, ValueError) as error:
        raise NotSent(_words(error)) from error


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        reply = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return visible(f"{error.smtp_code} {reply}")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, refusal = next(iter(error.recipients.values()))
        return visible(f"{code} {refusal.decode('utf-8', 'replace')}")
    return visible(str(error) or type(error).__name__)


# -- mail


def letter(recipient: str, sender: str, notices: Sequence[Notice], now: datetime) -> EmailMessage:
    """Returns the mail about notices. The same notices give the same Message-ID."""
    message = EmailMessage(policy=POLICY)
    message["From"] = f"Waypost <{sender}>"
    message["To"] = recipient
    message["Subject"] = subject(notices)[:SUBJECT_CHARACTERS]
    message["Date"] = email.utils.format_datetime(now)
    numbers = ",".join(str(notice.pk) for notice in notices)
    digest = hashlib.sha256(f"{site()} {numbers}".encode()).hexdigest()[:32]
    message["Message-ID"] = f"<alert.{digest}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation notice answers it
    if any(_is_critical(notice) for notice in notices):
        message["X-Priority"] = "1"
    context = {"notices": notices, "site": site(), "host": host()}
    message.set_content(render_to_string("mail/alerts.txt", context))
    return message


def subject(notices: Sequence[Notice]) -> str:
    """Returns one line about all of them, the first critical one in front."""
    if len(notices) == 1 or all(notice.alert is None for notice in notices):
        return f"Waypost {host()}: {_line(notices[0])}"
    first = next((notice for notice in notices if _is_critical(notice)), notices[0])
    return f"Waypost {host()}: {_line(first)} ({counted(len(notices) - 1, 'more notice')})"


def _line(notice: Notice) -> str:
    if notice.alert is None:
        return "test"
    word = "ended" if notice.kind == Kind.ENDED else notice.alert.severity
    return f"{word}: {visible(notice.alert.summary)}"


def _is_critical(notice: Notice) -> bool:
    return notice.kind == Kind.OPENED and notice.alert is not None and notice.alert.severity == "critical"


def _deliver(message: EmailMessage, sender: str, recipient: str, settings: Alerts) -> str:
    faults = []
    for server, port in _servers(recipient, settings):
        try:
            return _transaction(server, port, message, sender, recipient, settings)
        except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
            raise NotSent(f"{server}: {_words(error)}") from error  # it is the server for this address, and refuses
        except (OSError, smtplib.SMTPException) as error:
            faults.append(f"{server}:{port}: {_words(error)}")
    raise NotSent("; ".join(faults) or f"no mail server for {recipient}")


def _servers(recipient: str, settings: Alerts) -> list[tuple[str, int]]:
    """Returns the mail servers, the first one to be tried first. Raises DNSException, NotSent."""
    if settings.smtp:
        name, _, port = settings.smtp.rpartition(":")
        return [(name.strip("[]"), int(port))]
    domain = recipient.rpartition("@")[2]
    try:
        answer: Any = own_resolver().resolve(domain, "MX", lifetime=DNS_S)
    except dns.resolver.NoAnswer:
        return [(domain, SMTP_PORT)]  # RFC 5321 5.1: the domain itself
    found = sorted((each.preference, each.exchange.to_text(omit_final_dot=True)) for each in answer)
    if [name for _, name in found] == ["."] or not found:
        raise NotSent(f"{domain} takes no mail (null MX)")
    return [(name, SMTP_PORT) for _, name in found[:HOSTS_MAX]]


def _transaction(server: str, port: int, message: EmailMessage, sender: str, recipient: str, settings: Alerts) -> str:
    try:
        return _attempt(server, port, message, sender, recipient, settings, settings.smtp_tls)
    except ssl.SSLError:
        if settings.smtp_tls != "may":
            raise
        return _attempt(server, port, message, sender, recipient, settings, "none")


def _attempt(
    server: str, port: int, message: EmailMessage, sender: str, recipient: str, settings: Alerts, tls: str
) -> str:
    if tls == "implicit":
        client: smtplib.SMTP = smtplib.SMTP_SSL(timeout=CONNECT_S, local_hostname=host(), context=_context(tls))
    else:
        client = smtplib.SMTP(timeout=CONNECT_S, local_hostname=host())
    client._host = server  # type: ignore[attr-defined]  # the name that its certificate must have
    with deadline(lambda: client.sock, TOTAL_S):
        try:
            code, reply = client.connect(server, port)
            _refuse_own(client.sock, f"{server}:{port}")
            if code != 220:  # RFC 5321 4.2: service ready
                raise smtplib.SMTPConnectError(code, reply)
            client.ehlo_or_helo_if_needed()
            if tls in ("may", "verify") and client.has_extn("starttls"):
                client.starttls(context=_context(tls))
            elif tls == "verify":
                raise NotSent(f'{server} offers no STARTTLS, which smtp_tls = "verify" demands')
            if settings.smtp_user and tls in SAFE:
                client.login(settings.smtp_user, _secret(settings.smtp_password_file).decode("utf-8"))
            _accepted(client.mail(sender))
            _accepted(client.rcpt(recipient))
            code, reply = _accepted(client.data(message.as_bytes()))
            with contextlib.suppress(smtplib.SMTPException, OSError):  # it has the mail
                client.quit()
        finally:
            client.close()
    return f"{server}: {visible(f'{code} ' + reply.decode('utf-8', 'replace'))}"[:ANSWER_CHARACTERS]


def _refuse_own(connection: socket.socket | None, server: str) -> None:
    """Raises ConnectionError for a connection to a receiver of this Waypost, in whose queue the mail could wait."""
    if connection is None:
        return
    (address, port), own = connection.getpeername()[:2], connection.getsockname()[0]
    ports = {listen_address(each.address)[1] for each in current_settings().all_listeners}
    if port in ports and (address == own or ip_address(address).is_loopback):
        raise ConnectionError(f"{server} is this Waypost, whose queue may be what is broken; set [alerts] smtp")


def _accepted(answer: tuple[int, bytes]) -> tuple[int, bytes]:
    """Returns the answer of a server that agrees. Raises SMTPResponseException."""
    if answer[0] not in (250, 251):  # RFC 5321 4.2.3
        raise smtplib.SMTPResponseException(*answer)
    return answer


def _context(tls: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if tls == "may":  # better than none, as between any two mail servers
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# -- webhook


def _document(notices: Sequence[Notice], now: datetime) -> dict[str, Any]:
    return {
        "version": 1,
        "host": host(),
        "sent_at": now.timestamp(),
        "notices": [
            {"id": notice.pk, "kind": str(notice.kind), "alert": None if notice.alert is None else _alert(notice)}
            for notice in notices
        ],
    }


def _alert(notice: Notice) -> dict[str, Any]:
    alert = notice.alert
    assert alert is not None
    return {
        "id": alert.pk,
        "node": alert.node,
        "cause": alert.cause,
        "rule": alert.rule,
        "severity": alert.severity,
        "summary": alert.summary,
        "detail": alert.detail,
        "url": site() + alert.link,
        "began_at": alert.began_at.timestamp(),
        "opened_at": alert.opened_at.timestamp() if alert.opened_at is not None else None,
        "ended_at": alert.ended_at.timestamp() if alert.ended_at is not None else None,
    }


def _post(settings: Alerts, document: dict[str, Any], now: datetime) -> str:
    body = json.dumps(document, ensure_ascii=True).encode()
    headers = {}
    if settings.webhook_secret_file:
        headers = signed(_secret(settings.webhook_secret_file), now.timestamp(), body)
    answer = post(settings.webhook, body, headers, read_s=CONNECT_S, total_s=TOTAL_S)
    if not answer.good:
        raise NotSent(answer.words)
    return answer.words


def _secret(path: str) -> bytes:
    with Path(path).open("rb") as file:
        secret = file.read(SECRET_BYTES_MAX).strip()
    if not secret:
        raise NotSent(f"{path} is empty")
    return secret
