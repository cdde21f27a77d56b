"""What is told of single pods: those that were rejected before a question, and those that are evicted in its answer."""

from typing import NamedTuple

from shared.messages.binding import Displaced
from shared.model.objects import Pod


class Rejected(NamedTuple):
    """A pod that was tried before: since when it waits, who rejected it, and its last message."""

    pod: Pod
    since: float
    plugins: tuple[str, ...]
    message: str


class Eviction(NamedTuple):
    """`preemptor`: the uid of the pod that preempts the victim on this node."""

    preemptor: str
    victim: Displaced
    node: str
    priority: int
