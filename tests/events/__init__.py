"""Tests of mailcore/events."""
