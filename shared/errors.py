"""Flotilla's exceptions. Each branch of the tree says whose fault it is: the user's, the cluster's or ours."""

MAX_REMEMBERED = 256
"""The latest refusals that a core keeps for inspection."""


class FlotillaError(Exception):
    """Anything that Flotilla raises on purpose."""


class UserError(FlotillaError):
    """An object, a configuration or a command of the user's is wrong."""

    def lines(self) -> list[str]:
        """A line for each thing that is wrong."""
        return [str(self)]


class InvalidObject(UserError):
    """A Kubernetes object that cannot be used; names the object, the field and what is wrong with it."""

    def __init__(self, kind: str, key: str, field: str, reason: str) -> None:
        self.kind = kind
        self.key = key
        self.field = field
        self.reason = reason
        where = f"{field}: " if field else ""
        super().__init__(f"{kind} {key}: {where}{reason}")


class UnreadableObject(UserError):
    """An object that counts although part of it is unreadable; names it, what is wrong, and what follows from it."""


class InvalidConfig(UserError):
    """A configuration that cannot be used; names the path in the file."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class ClusterError(FlotillaError):
    """The cluster or its API server fails, or contradicts what it said before (an unknown node, a duplicate pod)."""


class ProtocolError(FlotillaError):
    """A message that does not follow the protocol: a gap, an old epoch, an unknown version."""


class InvariantBroken(FlotillaError):
    """A fault of ours: an impossible state."""


class Unexpected(FlotillaError):
    """An unexpected exception has ended the term of this process; `__cause__` is that exception."""
