"""Benchmarks, each with its peer in the same run: ``python -m bench.relay``; ``python -m bench`` runs all that have one.

They start what they measure on free loopback ports, in a directory of their own, and end it. docs/benchmarks.md says
what is measured and how to read it.
"""
