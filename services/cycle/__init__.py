"""Runs rounds: scatters a batch to the workers, gathers their proposals, merges and decides."""
