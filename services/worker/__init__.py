"""Filters and scores pods on the shards of nodes that it holds."""
