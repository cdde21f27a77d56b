"""The state of a set of nodes as NumPy columns, and what is counted over it."""
