"""Who may do what in Redis: an ACL user for each service that uses it, with the keys and commands it needs.

docs/redis.md shows the rules. Redis checks commands and keys inside scripts as well. Who may only run commands that
read cannot write, on any key.
"""

from dataclasses import dataclass

EVERYBODY = ("ping", "select")
STATE = ("meta", "cluster", "nominations", "nodes:*", "pods:*", "objects:*")
"""What workers load."""


@dataclass(frozen=True, slots=True)
class Rights:
    """`keys`: patterns, behind the prefix and a colon."""

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
        ),
    ),
    "worker": Rights(STATE, ("multi", "exec", "hmget", "hvals", "hgetall")),
}
"""By user. The other services have none: they never connect."""
NOBODY = "default on nopass resetkeys resetchannels -@all +ping"
"""Who gives no password may ask whether the server is there, as health checks do."""


def rule(user: str, password: str, prefix: str = "flotilla") -> str:
    """What follows `user` in an ACL file, or ACL SETUSER. `password`: `>secret`, or `#` and its SHA-256."""
    rights = RIGHTS[user]
    keys = " ".join(f"~{prefix}:{key}" for key in rights.keys)
    commands = " ".join(f"+{command}" for command in (*EVERYBODY, *rights.commands))
    return f"{user} on {password} {keys} resetchannels -@all {commands}"
