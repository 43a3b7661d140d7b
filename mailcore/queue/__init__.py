"""The queue on the log: runners, the active set, recovery, retries, spool files, changes by operators."""
