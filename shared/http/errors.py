"""Why a request got no answer, and whether the server may have received it."""

import os
import socket
import ssl

from shared.errors import ClusterError


class HttpFailure(ClusterError):
    """No usable answer. `maybe_received`: the server may have received the request, and done what it asks."""

    def __init__(self, reason: str, *, maybe_received: bool = True) -> None:
        self.maybe_received = maybe_received
        super().__init__(reason)


class NotConnected(HttpFailure):
    """There is no connection to the server, so it has not received the request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, maybe_received=False)


class Late(HttpFailure):
    """The deadline has passed."""


class Closed(HttpFailure):
    """The connection ended before the first byte of an answer.

    The server of a kept connection probably closed it before it received the request.
    """


class BadAnswer(HttpFailure):
    """What the server sent is no answer: it is malformed, too long, or broken off."""


NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for an answer that is not TLS; the second one since 3.2."""


def not_connected(cause: OSError) -> NotConnected:
    """Describe a failure to connect in one line."""
    if getattr(cause, "reason", "") in NOT_TLS:
        return NotConnected("does not support TLS; http://?")
    return NotConnected(f"cannot be reached: {words_of(cause)}")


def words_of(error: OSError) -> str:
    """The operating system's message; TLS and DNS have error numbers of their own."""
    if error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
