"""The state of a set of nodes as NumPy columns, and counts over it."""
