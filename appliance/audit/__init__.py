"""The audit: who changed what, and why."""
