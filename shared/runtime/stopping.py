"""The shutdown budget: how long each step of a service's end may take. After STOP_SECONDS the process exits.

The steps of one service run one after the other, so their sum and MARGIN must fit into STOP_SECONDS.
"""

STOP_SECONDS = 4.0
"""Less than a supervisor or kubelet waits before it kills the process."""
MARGIN = 0.5
"""For everything without a budget of its own: cancelling tasks, closing connections."""
RELEASE_CALL = 0.5
"""Each of the two calls that release a Lease."""
SNAPSHOT_WORDS = 0.9
"""For binders to report how their orders ended; most calls take milliseconds. Longer than a binder's heartbeat
interval.
"""
SNAPSHOT_FENCES = 0.9
"""For fencing the orders that binders did not report."""
SNAPSHOT_WRITES = 0.7
"""For pending writes to Redis."""
CYCLE_PODS = 1.5
"""For the pods that a cycle has taken."""
WORKER_SHARDS = 1.0
"""For other workers to take this one's shards; the cycle may be ending as well."""
BINDER_ORDERS = 2.0
"""For the orders that a binder is carrying out."""

_RELEASE = (RELEASE_CALL, RELEASE_CALL)
PARTS = {
    "watcher": _RELEASE,
    "queue": _RELEASE,
    "snapshot": (SNAPSHOT_WORDS, SNAPSHOT_FENCES, SNAPSHOT_WRITES, *_RELEASE),
    "cycle": (CYCLE_PODS, *_RELEASE),
    "worker": (WORKER_SHARDS,),
    "binder": (BINDER_ORDERS,),
}
