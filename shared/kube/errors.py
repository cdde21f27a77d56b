"""What may go wrong with a call to the API server. One line each: which server, what was asked, what it said."""

from shared.errors import ClusterError


class Unreachable(ClusterError):
    """No answer. `maybe_done`: the server may have got the request and done what it asked."""

    def __init__(self, server: str, asked: str, reason: str, *, maybe_done: bool) -> None:
        self.maybe_done = maybe_done
        super().__init__(f"{server}: {asked}: {one_line(reason)}")


class Silent(Unreachable):
    """The connection may be there, and nothing comes."""


class Refused(ClusterError):
    """An answer that is not the one hoped for. `retry_after`: seconds, if the server named them."""

    def __init__(self, server: str, asked: str, status: int, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"{server}: {asked}: {status} {one_line(message)}".rstrip())


class Unauthorized(Refused):
    """The server does not know who asks: wrong or expired credentials."""


class Forbidden(Refused):
    """The server knows who asks and does not allow it."""


class Gone(Refused):
    """The list or watch cannot be continued from here: what happened since is remembered no more."""


def one_line(text: str) -> str:
    return " ".join(text.split())
