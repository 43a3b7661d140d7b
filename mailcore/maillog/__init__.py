"""The mail log: the events of every message, for people (mail.log, in Postfix's form) and for programs (mail.jsonl)."""

from mailcore.maillog.maillog import MailLog

__all__ = ["MailLog"]
