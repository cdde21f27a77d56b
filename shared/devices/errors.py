"""Errors that end a pod's attempt, rather than only ruling out a node."""

from shared.errors import FlotillaError


class AllocationError(FlotillaError):
    """Something is wrong with a claim, a class or a pool that the claim needs; the text is kube-scheduler's."""


class OutOfSteps(AllocationError):
    """A search took more steps than it may; the text is that of kube-scheduler's time-out."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node}: timed out trying to allocate devices")
