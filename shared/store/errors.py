"""Errors of the snapshot's state in Redis, by what to do about them."""

from shared.errors import ClusterError


class StoreUnreachable(ClusterError):
    """Redis does not answer, or refuses for now. The call may have been executed: repeat it."""


class StateLost(ClusterError):
    """What this writer wrote is gone (flushed, restarted empty, an older replica).

    Nothing was written. Begin a new term, and write the state completely.
    """


class Deposed(ClusterError):
    """A newer term has begun: nothing was written, and this writer must stop."""

    def __init__(self, epoch: int, newest: int) -> None:
        self.epoch = epoch
        self.newest = newest
        super().__init__(f"epoch {epoch}: what is in Redis is of epoch {newest}")
