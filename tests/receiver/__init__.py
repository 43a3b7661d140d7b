"""Tests of mailcore/receiver."""
