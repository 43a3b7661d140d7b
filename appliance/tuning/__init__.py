"""Tuning: parameters, what-if, applying, history."""
