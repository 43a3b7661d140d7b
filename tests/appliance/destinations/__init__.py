"""Tests of the destinations: the list, one of them, and what is done to it."""
