"""The subjects of a pipeline, without its prefix, and the inboxes where replies come."""

import re
from functools import lru_cache

from shared.errors import UserError

PIPELINE_OWNER = "pipeline.owner"
LEASES_RELEASED = "leases.released"
STATUS_ASK = "status.ask"
STATUS_ANSWERS = "status.answers"
WATCH = "watch"
WATCHER_LIST = "watcher.list"
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
WORKER_READ = "worker.read"
CYCLE_ANSWERS = "cycle.answers"
CYCLE_COMMITTED = "cycle.committed"
CYCLE_RECORD = "cycle.record"
CYCLE_DECISIONS = "cycle.decisions"
CYCLE_EXPLAIN = "cycle.explain"
SNAPSHOT_COMMITS = "snapshot.commits"
SNAPSHOT_DELTAS = "snapshot.deltas"
SNAPSHOT_BOUND = "snapshot.bound"
SNAPSHOT_LIST = "snapshot.list"
SNAPSHOT_NOMINATED = "snapshot.nominated"
BINDER_BEATS = "binder.beats"
BINDER_NOTICES = "binder.notices"
BINDER_PERMITS = "binder.permits"
BINDER_WAITING = "binder.waiting"
BINDER_LIST = "binder.list"
BINDER_WITHDRAWALS = "binder.withdrawals"
BINDER_EVICTIONS = "binder.evictions"

EVERY_SUBJECT = frozenset(value for name, value in dict(globals()).items() if name.isupper())
"""All of the above; single processes have subjects of their own."""

OWNER_GROUP = "owner"
WATCHER_GROUP = "watcher"
BINDER_GROUP = "binder"
WORKER_GROUP = "worker"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_RESERVED = frozenset(subject.rpartition(".")[2] for subject in EVERY_SUBJECT)


def worker(name: str) -> str:
    return f"worker.{name}"


def binder(name: str) -> str:
    return f"binder.{name}"


def check_name(name: str, what: str) -> str:
    """The name, if a process or a prefix may have it; UserError otherwise."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UserError(f"{what} {name!r}: must be 1 to 128 letters, digits, - and _, and none of the bus's own words")
    return name


@lru_cache(maxsize=1024)
def pattern(subject: str) -> str:
    """The subject without process names, as in metrics."""
    head, dot, _ = subject.partition(".")
    return subject if subject in EVERY_SUBJECT or not dot else f"{head}.*"


INBOXES = "inbox."
CLI = "cli"
"""The command line's role."""


def inbox(role: str, unique: str) -> str:
    """The inbox of one process; each reply has a subject of its own below it. Inboxes are separate by role, so that no
    service can read another's.
    """
    return f"{INBOXES}{role}.{unique}"
