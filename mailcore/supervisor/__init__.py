"""The supervisor: starts the processes of the core and restarts any that exit."""
