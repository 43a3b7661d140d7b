"""The receiver: a process that accepts mail, and the SMTP server it does that with."""
