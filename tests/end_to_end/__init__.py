"""The whole appliance as a child process, real sockets, real disk; the ledger decides."""
