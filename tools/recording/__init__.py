"""Recordings of decisions: their file format, and the recorder that writes them."""
