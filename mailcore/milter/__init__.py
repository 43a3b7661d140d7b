"""Milters: programs that check and change mail while it is received. This room is the client of their protocol."""
