"""The HTTP API: the portal's looks and changes for programs, and sending, with tokens."""
