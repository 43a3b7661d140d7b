"""Tests of mailcore/deliverer."""
