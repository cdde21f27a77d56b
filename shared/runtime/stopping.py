"""How long each part of a service's end may take. A process that takes longer than STOP_SECONDS is left as it is.

The parts of one service follow each other, so their sum and MARGIN have to stay within STOP_SECONDS.
"""

STOP_SECONDS = 4.0
"""For a process that is asked to end: less than whoever would kill it waits."""
MARGIN = 0.5
"""For what has no part of its own: cancelling tasks, closing connections."""
RELEASE_CALL = 0.5
"""Each of the two calls that give a Lease back."""
SNAPSHOT_WORDS = 0.9
"""For binders to tell how their orders ended: most calls take some milliseconds. Longer than between two beats."""
SNAPSHOT_FENCES = 0.9
"""For fencing the orders that binders did not tell of."""
SNAPSHOT_WRITES = 0.7
"""For what waits to be written to Redis."""
CYCLE_PODS = 1.5
"""For the pods that a cycle has taken."""
WORKER_SHARDS = 1.0
"""For others to take a worker's shards: the cycle may be ending as well."""
BINDER_ORDERS = 2.0
"""For the orders that a binder carries out."""

_RELEASE = (RELEASE_CALL, RELEASE_CALL)
PARTS = {
    "watcher": _RELEASE,
    "queue": _RELEASE,
    "snapshot": (SNAPSHOT_WORDS, SNAPSHOT_FENCES, SNAPSHOT_WRITES, *_RELEASE),
    "cycle": (CYCLE_PODS, *_RELEASE),
    "worker": (WORKER_SHARDS,),
    "binder": (BINDER_ORDERS,),
}
