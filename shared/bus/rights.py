"""Rights of each service on NATS: who may publish and subscribe to what, and nothing more.

docs/nats.md has the configuration made from this; a service that sends something new gets its right here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from shared.bus import subjects as s
from shared.bus.subjects import CLI, EVERY_SUBJECT, inbox

ANY_WORKER, ANY_BINDER = s.worker("*"), s.binder("*")
ANSWERING = 'allow_responses: { max: 1, expires: "1m" }'
"""Longer than any request waits."""


@dataclass(frozen=True, slots=True)
class Rights:
    """`answers`: may reply to requests, at their inboxes. `inboxes`: the roles of its own inboxes, if not its name.

    Subjects with a meaning of their own are excluded from a pattern unless they are named as well.
    """

    sends: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()
    inboxes: tuple[str, ...] = ()
    answers: bool = False


RIGHTS = {
    "watcher": Rights(
        sends=(s.PIPELINE_OWNER, s.LEASES_RELEASED, s.STATUS_ANSWERS, s.WATCH),
        hears=(s.LEASES_RELEASED, s.STATUS_ASK, s.WATCH, s.WATCHER_LIST, s.WATCHER_RELIST, s.WATCHER_SEEN),
        answers=True,
    ),
    "queue": Rights(
        sends=(
            s.PIPELINE_OWNER,
            s.LEASES_RELEASED,
            s.STATUS_ANSWERS,
            s.WATCHER_LIST,
            s.WATCHER_RELIST,
            s.WATCHER_SEEN,
            s.BINDER_NOTICES,
        ),
        hears=(
            s.PIPELINE_OWNER,
            s.LEASES_RELEASED,
            s.STATUS_ASK,
            s.WATCH,
            s.QUEUE_TAKE,
            s.QUEUE_OUTCOMES,
            s.QUEUE_FORGOTTEN,
            s.QUEUE_EVICTED,
            s.QUEUE_ACTIVATE,
            s.QUEUE_INSPECT,
            s.QUEUE_LIST,
        ),
        answers=True,
    ),
    "snapshot": Rights(
        sends=(
            s.PIPELINE_OWNER,
            s.LEASES_RELEASED,
            s.STATUS_ANSWERS,
            s.WATCHER_LIST,
            s.WATCHER_RELIST,
            s.WATCHER_SEEN,
            s.QUEUE_FORGOTTEN,
            s.CYCLE_COMMITTED,
            s.SNAPSHOT_DELTAS,
            s.BINDER_EVICTIONS,
            s.BINDER_WITHDRAWALS,
            ANY_BINDER,
        ),
        hears=(
            s.PIPELINE_OWNER,
            s.LEASES_RELEASED,
            s.STATUS_ASK,
            s.WATCH,
            s.QUEUE_EVICTED,
            s.SNAPSHOT_COMMITS,
            s.SNAPSHOT_BOUND,
            s.SNAPSHOT_LIST,
            s.SNAPSHOT_NOMINATED,
            s.BINDER_BEATS,
            s.SNAPSHOT_DELTAS,
        ),
        answers=True,
    ),
    "cycle": Rights(
        sends=(
            s.PIPELINE_OWNER,
            s.LEASES_RELEASED,
            s.STATUS_ANSWERS,
            s.QUEUE_TAKE,
            s.QUEUE_OUTCOMES,
            s.SNAPSHOT_COMMITS,
            s.CYCLE_DECISIONS,
            ANY_WORKER,
        ),
        hears=(
            s.LEASES_RELEASED,
            s.STATUS_ASK,
            s.WORKER_BEATS,
            s.CYCLE_ANSWERS,
            s.CYCLE_COMMITTED,
            s.CYCLE_RECORD,
            s.CYCLE_EXPLAIN,
        ),
        answers=True,
    ),
    "worker": Rights(
        sends=(s.STATUS_ANSWERS, s.WORKER_BEATS, s.CYCLE_ANSWERS),
        hears=(s.STATUS_ASK, s.SNAPSHOT_DELTAS, s.WORKER_READ, ANY_WORKER),
        answers=True,
    ),
    "binder": Rights(
        sends=(
            s.PIPELINE_OWNER,
            s.STATUS_ANSWERS,
            s.QUEUE_EVICTED,
            s.QUEUE_ACTIVATE,
            s.SNAPSHOT_BOUND,
            s.SNAPSHOT_NOMINATED,
            s.BINDER_BEATS,
            s.BINDER_WAITING,
            s.BINDER_WITHDRAWALS,
        ),
        hears=(
            s.STATUS_ASK,
            s.BINDER_NOTICES,
            s.BINDER_PERMITS,
            s.BINDER_LIST,
            s.BINDER_EVICTIONS,
            s.BINDER_WITHDRAWALS,
            ANY_BINDER,
        ),
        answers=True,
    ),
    "reader": Rights(
        sends=(
            s.STATUS_ASK,
            s.QUEUE_LIST,
            s.SNAPSHOT_LIST,
            s.WORKER_READ,
            s.BINDER_LIST,
            s.CYCLE_RECORD,
            s.CYCLE_EXPLAIN,
        ),
        hears=(s.STATUS_ANSWERS, s.SNAPSHOT_DELTAS, s.CYCLE_DECISIONS),
        inboxes=(CLI,),
    ),
    "permitter": Rights(sends=(s.BINDER_PERMITS,), hears=(s.BINDER_BEATS, s.BINDER_WAITING), inboxes=(CLI,)),
}
"""By user: the services, then commands that only look, like `flotilla queue`, and `flotilla permit`."""

LEADERS = ("watcher", "queue", "snapshot", "cycle")
"""Services of which one leads."""
FOLLOWED = frozenset({s.WORKER_BEATS})
"""Subjects of one service that its standbys hear as well."""
LED = frozenset(
    subject
    for leader in LEADERS
    for subject in RIGHTS[leader].hears
    if subject not in FOLLOWED and sum(subject in rights.hears for rights in RIGHTS.values()) == 1
)
"""Subjects with one subscriber: a leader."""
GROUPS: Mapping[str, tuple[str, ...]] = {"core": LEADERS}
"""Users of processes with several services, which have the rights of all of these."""


def _of_group(services: tuple[str, ...]) -> Rights:
    """What services of one group alone say to each other stays in the process or goes to a leader in another one."""
    of = [RIGHTS[service] for service in services]
    return Rights(
        sends=tuple(dict.fromkeys(subject for rights in of for subject in rights.sends)),
        hears=tuple(dict.fromkeys(subject for rights in of for subject in rights.hears)),
        inboxes=services,
        answers=any(rights.answers for rights in of),
    )


USERS = RIGHTS | {name: _of_group(services) for name, services in GROUPS.items()}
"""All users."""


def table() -> str:
    """The rights as a Markdown table, without the prefix."""
    rows = [
        f"| {user} | {_listed(rights.sends)} | {_listed((*rights.hears, *_inboxes(user)))} |"
        for user, rights in USERS.items()
    ]
    return "\n".join(["| user | publishes to | subscribes to |", "|---|---|---|", *rows]) + "\n"


def authorization(prefix: str = "flotilla", passwords: Mapping[str, str] | None = None) -> str:
    """The authorization block of nats-server's configuration. Without passwords by user, it reads NATS_QUEUE and so on
    from the server's environment.
    """
    given = {user: f"$NATS_{user.upper()}" for user in USERS}
    if passwords is not None:
        given = {user: f'"{passwords[user]}"' for user in USERS}
    return "\n".join(["authorization {", "  users: [", *_users(prefix, given), "  ]", "}"]) + "\n"


def _users(prefix: str, passwords: Mapping[str, str]) -> Iterator[str]:
    for user, rights in USERS.items():
        yield f"    {{ user: {user}, password: {passwords[user]}, permissions: {{"
        yield from _rule("publish", prefix, rights.sends)
        yield from _rule("subscribe", prefix, (*rights.hears, *_inboxes(user)))
        if rights.answers:
            yield f"      {ANSWERING}"
        yield "    } }"


def _inboxes(user: str) -> tuple[str, ...]:
    """Every process subscribes to its own, even if it never sends requests."""
    return tuple(inbox(role, "*") + ".*" for role in USERS[user].inboxes or (user,))


def _rule(name: str, prefix: str, allowed: tuple[str, ...]) -> Iterator[str]:
    yield f"      {name}: {{"
    yield f"        allow: [{_quoted(prefix, allowed)}]"
    if denied := _excepted(allowed):
        yield f"        deny: [{_quoted(prefix, denied)}]"
    yield "      }"


def _excepted(allowed: tuple[str, ...]) -> tuple[str, ...]:
    patterns = [each for each in allowed if each in (ANY_WORKER, ANY_BINDER)]
    meant = (each for each in EVERY_SUBJECT if any(fnmatchcase(each, pattern) for pattern in patterns))
    return tuple(sorted(each for each in meant if each not in allowed))


def _quoted(prefix: str, names: tuple[str, ...]) -> str:
    return ", ".join(f'"{prefix}.{name}"' for name in names)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
