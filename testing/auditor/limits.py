"""How long things may take before the auditor calls them broken."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    lag: float = 5.0
    """Seconds by which one source may tell of something later than another. The scheduler may have decided on a node as
    it was so long before the binding is seen, or as the auditor will see it only so long after."""
    patience: float = 10.0
    """Seconds for the scheduler to draw its conclusions: a pod to enter the queue or leave it, an entry to leave the
    ledger. A fault run sets it above the longest failover."""
