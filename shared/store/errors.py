"""What can go wrong between the snapshot's state and Redis, told apart by what is to be done about it."""

from shared.errors import ClusterError


class StoreUnreachable(ClusterError):
    """Redis does not answer, or refuses for now. What was under way may have been done or not: do it again."""


class StateLost(ClusterError):
    """What this writer has written is not there any more (flushed, restarted empty, an older replica).

    Nothing was written. A new term begins, and writes the state whole.
    """


class Deposed(ClusterError):
    """A newer term has begun: nothing was written, and whoever is told this is to stop."""

    def __init__(self, epoch: int, newest: int) -> None:
        self.epoch = epoch
        self.newest = newest
        super().__init__(f"epoch {epoch}: what is in Redis is of epoch {newest}")
