"""Errors of calls to the API server, one line each: the server, the request, the reason."""

from shared.errors import ClusterError

REJECTED = (400, 413, 422)
"""Answers that reject what was sent, and will do so again."""
FORBIDDEN = 403
NO_RIGHT = "cannot patch resource"
"""In the API server's answer if a right is missing; in none of an admission webhook."""


class Unreachable(ClusterError):
    """No answer. `maybe_done`: the server may have received and executed the request."""

    def __init__(self, server: str, asked: str, reason: str, *, maybe_done: bool) -> None:
        self.maybe_done = maybe_done
        super().__init__(f"{server}: {asked}: {one_line(reason)}")


class Silent(Unreachable):
    """A connection on which nothing comes; it may be alive."""


class Refused(ClusterError):
    """An unexpected answer. `retry_after`: seconds, if the server named them."""

    def __init__(self, server: str, asked: str, status: int, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"{server}: {asked}: {status} {one_line(message)}".rstrip())

    @property
    def is_final(self) -> bool:
        """Whether the server, a webhook or a policy rejects this change of this object for good."""
        if self.status == FORBIDDEN:
            return "denied" in self.message and NO_RIGHT not in self.message
        return self.status in REJECTED


class Unauthorized(Refused):
    """401: wrong or expired credentials."""


class Forbidden(Refused):
    """403: the server knows us and does not allow it."""


class Gone(Refused):
    """410: the list or watch cannot resume from here; the server has forgotten the events since."""


def one_line(text: str) -> str:
    return " ".join(text.split())
