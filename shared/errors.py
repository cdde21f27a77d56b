"""Flotilla's exceptions. Each branch of the tree says whose fault it is: the user's, the cluster's or ours."""

MOST_REMEMBERED = 256
"""So many of the last refusals a core keeps for whoever wants to look at them."""


class FlotillaError(Exception):
    """Anything that Flotilla raises on purpose."""


class UserError(FlotillaError):
    """Somebody wrote something that cannot be right: an object, a configuration, a command."""

    def lines(self) -> list[str]:
        """Each thing that is wrong in a line."""
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
    """An object that counts and cannot be read whole; names it, what is wrong, and what follows from it."""


class InvalidConfig(UserError):
    """A configuration that cannot be used; names the path in the file."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class ClusterError(FlotillaError):
    """The cluster's state and what we were told about it do not fit together (an unknown node, a doubled pod)."""


class ProtocolError(FlotillaError):
    """A message that does not follow the protocol: a gap, an old epoch, an unknown version."""


class InvariantBroken(FlotillaError):
    """A fault of ours: state that cannot be."""


class Unexpected(FlotillaError):
    """An exception that nobody expected has ended the term of this process; `__cause__` is that exception."""
