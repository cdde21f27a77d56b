"""The shard of a node."""

from shared.cluster.nodetable import stable_hash


def shard_of(node: str, shards: int) -> int:
    """Equal in all processes, and evenly distributed for any names."""
    return stable_hash(node) % shards
