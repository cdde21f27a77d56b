"""Runs the services' cores in one process on virtual time: for tests, benchmarks and conformance."""
