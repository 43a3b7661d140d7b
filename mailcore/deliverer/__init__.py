"""The deliverer: a process that makes SMTP transactions, and its SMTP client."""
