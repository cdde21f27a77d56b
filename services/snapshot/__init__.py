"""The cluster cache: the one writer of state, its assume ledger and its stream of deltas."""
