"""Tests of mailcore/terminal."""
