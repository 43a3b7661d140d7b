"""The users that may log in to send mail: their file, their verifiers, and what each may send."""
