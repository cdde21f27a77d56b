"""Which shard a node belongs to."""

from shared.cluster.nodetable import stable_hash


def shard_of(node: str, shards: int) -> int:
    """The same for everybody, and spread evenly whatever the names look like."""
    return stable_hash(node) % shards
