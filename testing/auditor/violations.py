"""A broken promise, told so that whoever reads it need not look elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Invariant(StrEnum):
    BOUND_ONCE = "bound once"
    """A pod is bound to one node, once."""
    CAPACITY = "capacity"
    """What the pods on a node request, bound or assumed, is within what the node has."""
    HOST_PORTS = "host ports"
    """No two pods on a node take the same port of it."""
    CONSTRAINTS = "constraints"
    """A pod is bound to a node that admits it."""
    QUEUED_AND_BOUND = "queued and bound"
    """No pod is to be decided and bound at once."""
    ACCOUNTED_FOR = "accounted for"
    """Every pod that is not bound is in the queue, and nothing else is."""
    LEDGER_ENDS = "ledger ends"
    """Every assumption ends."""
    PERMIT_ENDS = "permit ends"
    """Every wait for a permit ends."""
    ALL_BOUND = "all bound"
    """In the end, every pod is bound that is not expected to be left."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`pod` is its key; `numbers` those that the judgement rests on; `story` what was seen of the pod, oldest first."""

    invariant: Invariant
    at: float
    what: str
    uid: str = ""
    pod: str = ""
    node: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        subjects = (f"pod {self.pod} ({self.uid})" if self.uid else "", f"node {self.node}" if self.node else "")
        subject = ", ".join(part for part in subjects if part)
        first = f"{self.invariant}: {subject}: {self.what}" if subject else f"{self.invariant}: {self.what}"
        return "\n".join((first, *(f"    {line}" for line in self.story)))
