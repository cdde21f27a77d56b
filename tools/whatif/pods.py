"""Pods that a question begins with as rejected, and pods that its answer evicts."""

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
