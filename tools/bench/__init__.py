"""Benchmarks: rounds in one process, the whole pipeline, start-up, placement quality."""
