"""Metrics: what a monitoring system reads, as Prometheus text."""
