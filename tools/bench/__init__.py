"""Benchmarks: rounds in one process, the whole pipeline, starts, placement quality."""
