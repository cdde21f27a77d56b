"""Runs every service's core in one process; for tests, benchmarks and conformance."""
