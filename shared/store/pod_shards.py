"""In which shard each pod stands in Redis, as a pod that moves must be removed from there."""

from collections.abc import Mapping

from shared.cluster.nodetable import shard_of
from shared.store.schema import PlacedPod


class PodShards:
    """Begins with a whole state. The shard of a pod that has not changed since is computed when it is asked for: half a
    million would delay the start of a term by a third of a second.
    """

    def __init__(self, pods: Mapping[str, PlacedPod], shard_count: int) -> None:
        """`pods`: of the state, by uid."""
        self._unchanged = dict(pods)
        self._shard_count = shard_count
        self._changed: dict[str, int] = {}

    def get(self, uid: str) -> int | None:
        """None for a pod that is in no shard."""
        pod = self._unchanged.get(uid)
        return self._changed.get(uid) if pod is None else shard_of(pod.node, self._shard_count)

    def move(self, moved: Mapping[str, int | None]) -> None:
        """`moved`: the new shards of pods; None for nowhere."""
        for uid, shard in moved.items():
            self._unchanged.pop(uid, None)
            if shard is None:
                self._changed.pop(uid, None)
            else:
                self._changed[uid] = shard
