"""The mail log: what happened to the mail, for people (mail.log, in Postfix's form) and for programs (mail.jsonl)."""

from mailcore.maillog.maillog import MailLog

__all__ = ["MailLog"]
