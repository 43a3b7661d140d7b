"""The queue on the log: runners, the active set, recovery, retries, spool files, what operators do to messages."""
