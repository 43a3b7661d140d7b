"""Tests of the reports' pipeline."""
