"""Tests of the ages: the heat map of the queue."""
