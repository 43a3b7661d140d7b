"""The deliverer: a process that makes SMTP transactions, and the SMTP client it does that with."""
