"""The subjects of a pipeline, without its prefix, and the inboxes where replies come."""

import re
from functools import lru_cache

from shared.errors import UserError

PIPELINE_OWNER = "pipeline.owner"
WATCH = "watch"
WATCHER_RELIST = "watcher.relist"
WATCHER_SEEN = "watcher.seen"
QUEUE_TAKE = "queue.take"
QUEUE_OUTCOMES = "queue.outcomes"
QUEUE_FORGOTTEN = "queue.forgotten"
QUEUE_EVICTED = "queue.evicted"
QUEUE_ACTIVATE = "queue.activate"
QUEUE_INSPECT = "queue.inspect"
QUEUE_LIST = "queue.list"
WORKER_BEATS = "worker.beats"
CYCLE_ANSWERS = "cycle.answers"
CYCLE_COMMITTED = "cycle.committed"
SNAPSHOT_COMMITS = "snapshot.commits"
SNAPSHOT_DELTAS = "snapshot.deltas"
SNAPSHOT_BOUND = "snapshot.bound"
SNAPSHOT_LIST = "snapshot.list"
SNAPSHOT_NOMINATED = "snapshot.nominated"
BINDER_BEATS = "binder.beats"
BINDER_NOTICES = "binder.notices"
BINDER_PERMITS = "binder.permits"
BINDER_WAITING = "binder.waiting"
BINDER_WITHDRAWALS = "binder.withdrawals"
BINDER_EVICTIONS = "binder.evictions"

OWNER_GROUP = "owner"
WATCHER_GROUP = "watcher"
BINDER_GROUP = "binder"

_SHARED = frozenset(
    {
        PIPELINE_OWNER,
        WATCH,
        WATCHER_RELIST,
        WATCHER_SEEN,
        QUEUE_TAKE,
        QUEUE_OUTCOMES,
        QUEUE_FORGOTTEN,
        QUEUE_EVICTED,
        QUEUE_ACTIVATE,
        QUEUE_INSPECT,
        QUEUE_LIST,
        WORKER_BEATS,
        CYCLE_ANSWERS,
        CYCLE_COMMITTED,
        SNAPSHOT_COMMITS,
        SNAPSHOT_DELTAS,
        SNAPSHOT_BOUND,
        SNAPSHOT_LIST,
        SNAPSHOT_NOMINATED,
        BINDER_BEATS,
        BINDER_NOTICES,
        BINDER_PERMITS,
        BINDER_WAITING,
        BINDER_WITHDRAWALS,
        BINDER_EVICTIONS,
    }
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_RESERVED = frozenset(subject.rpartition(".")[2] for subject in _SHARED)


def worker(name: str) -> str:
    return f"worker.{name}"


def binder(name: str) -> str:
    return f"binder.{name}"


def every_subject() -> frozenset[str]:
    """All subjects except those of single processes."""
    return _SHARED


def check_name(name: str, what: str) -> str:
    """The name, if a process or a prefix may have it; UserError otherwise."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UserError(f"{what} {name!r}: must be 1 to 128 letters, digits, - and _, and none of the bus's own words")
    return name


@lru_cache(maxsize=1024)
def pattern(subject: str) -> str:
    """The subject without process names, as in metrics."""
    head, dot, _ = subject.partition(".")
    return subject if subject in _SHARED or not dot else f"{head}.*"


INBOXES = "inbox."
CLI = "cli"
"""The command line's role."""


def inbox(role: str, unique: str) -> str:
    """The inbox of one process; each reply has a subject of its own below it. Inboxes are separate by role, so that no
    service can read another's.
    """
    return f"{INBOXES}{role}.{unique}"
