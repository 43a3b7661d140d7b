"""Tests of the page of restart positions."""
