"""Rights in Redis: an ACL user for each service that uses it, with no more than it needs."""

from dataclasses import dataclass

EVERY_USER = ("ping", "select")
STATE = ("meta", "cluster", "nominations", "nodes:*", "pods:*", "objects:*")
"""The keys that workers load."""


@dataclass(frozen=True, slots=True)
class Rights:
    """`keys`: patterns behind the prefix and a colon."""

    keys: tuple[str, ...]
    commands: tuple[str, ...]


RIGHTS = {
    "queue": Rights(
        ("queue", "queue:term", "queue:pipeline"), ("hgetall", "eval", "evalsha", "get", "set", "hset", "hdel")
    ),
    "snapshot": Rights(
        (*STATE, "ledger", "ledger:next", "answer"),
        (
            "eval",
            "evalsha",
            "get",
            "set",
            "exists",
            "unlink",
            "rename",
            "hmget",
            "hvals",
            "hlen",
            "hset",
            "hdel",
            "info",
            "multi",
            "exec",
            "hgetall",
        ),
    ),
    "worker": Rights(STATE, ("multi", "exec", "hmget", "hvals", "hgetall", "hscan")),
}
"""By user. The other services never connect."""
USERS = RIGHTS | {
    "core": Rights(
        (*RIGHTS["queue"].keys, *RIGHTS["snapshot"].keys),
        tuple(dict.fromkeys((*RIGHTS["queue"].commands, *RIGHTS["snapshot"].commands))),
    )
}
"""All users: `core` is a process with both the queue and the snapshot."""
DEFAULT_USER = "default on nopass resetkeys resetchannels -@all +ping"
"""Without a password only PING is allowed, as health checks use it."""


def rule(user: str, password: str, prefix: str = "flotilla") -> str:
    """The rule of an ACL file or ACL SETUSER, after the user's name. `password`: with `>` or `#` in front."""
    rights = USERS[user]
    keys = " ".join(f"~{prefix}:{key}" for key in rights.keys)
    commands = " ".join(f"+{command}" for command in (*EVERY_USER, *rights.commands))
    return f"{user} on {password} {keys} resetchannels -@all {commands}"
