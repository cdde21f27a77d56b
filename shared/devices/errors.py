"""Errors that end a pod's attempt, rather than only ruling out a node."""

from shared.errors import FlotillaError


class AllocationError(FlotillaError):
    """Something is wrong with a claim, a class or a pool that the claim needs; the text is kube-scheduler's."""
