"""Whether two pods can have their host ports on one node."""

from shared.model.resources import HostPort

ANY_ADDRESS = "0.0.0.0"


def conflict(one: HostPort, other: HostPort) -> bool:
    """Two users of a port clash unless they use it on different addresses, both of them definite."""
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or ANY_ADDRESS in (one.ip, other.ip))
    )
