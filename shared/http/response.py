"""Answers, from the bytes in which they arrive. Pure.

    parser.begin(limit); parser.feed(data) ... until parser.complete; answer = parser.take()

Interim answers (1xx) are skipped. llhttp, by httptools, reads the format strictly.
"""

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from shared.http.errors import BadAnswer, Closed

MAX_HEAD_BYTES = 1 << 16
"""Of an answer's headers, with those of interim answers before it; trailers may be as long."""
FRAMING = 8
"""Bytes around each byte of a body, at most: a chunk of one byte has five."""
INTERIM = 200
"""Statuses below this are of interim answers."""

Headers = list[tuple[bytes, bytes]]
"""Names and values, as the server wrote them."""


class Response(msgspec.Struct, frozen=True, gc=False):
    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> str | None:
        """The value of the first header of this name, which is in lower case."""
        return header_of(self.headers, name)


def header_of(headers: Headers, name: bytes) -> str | None:
    size = len(name)
    for given, value in headers:
        if len(given) == size and given.lower() == name:
            return value.decode("latin-1")
    return None


class ResponseParser:
    """Of one connection, for one answer after the other.

    `status`: 0 before the headers are complete. `reusable`: whether another request may follow on the connection.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.complete = True
        self.reusable = True
        self.status = 0
        self.headers: Headers = []
        self._parts: list[bytes] = []
        self._limit = 0
        self._fed = 0
        self._size = 0

    def begin(self, limit: int) -> None:
        """Expect the next answer, with a body of at most `limit` bytes."""
        self.complete = False
        self.status = 0
        self.headers = []
        self._parts = []
        self._limit = limit
        self._fed = self._size = 0

    def feed(self, data: bytes) -> None:
        """Raises BadAnswer if this cannot be part of the answer."""
        if self.complete:
            self.reusable = False
            raise BadAnswer("the server sent something without a request")
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise self._bad("the server wants to speak another protocol than HTTP") from None
        except HttpParserError as cause:
            self.reusable = False
            if not self.complete:  # else it is what follows the answer
                raise self._bad(f"the server does not answer in HTTP: {cause}") from None
        if self._size > self._limit:
            raise self._bad(f"the answer is longer than {self._limit} bytes")
        if self._fed - self._size > MAX_HEAD_BYTES + FRAMING * self._size:
            raise self._bad(f"the headers are longer than {MAX_HEAD_BYTES} bytes")

    def end(self) -> None:
        """The server has closed the connection. That completes an answer without a length; else BadAnswer or Closed."""
        self.reusable = False
        if self.complete:
            return
        if not self.begun:
            raise Closed("the server closed the connection")
        framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if not self.status or framed:
            raise BadAnswer("the server broke off its answer")
        self.complete = True

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has arrived."""
        return bool(self.status or self._fed)

    @property
    def held(self) -> int:
        """Bytes that `take_body` would return."""
        return self._size

    def take_body(self) -> bytes:
        """What has arrived of the body since the last call; the limit applies to what is not taken."""
        parts, self._parts = self._parts, []
        self._fed, self._size = 0, 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def take(self) -> Response:
        """The complete answer; BadAnswer as in `check_encoding`."""
        self.check_encoding()
        return Response(self.status, self.headers, self.take_body())

    def check_encoding(self) -> None:
        """BadAnswer if the body is compressed, which was not asked for."""
        encoding = header_of(self.headers, b"content-encoding")
        if encoding not in (None, "", "identity"):
            raise BadAnswer(f"the answer is encoded ({encoding}), although it must not be")

    def _bad(self, reason: str) -> BadAnswer:
        self.reusable = False
        return BadAnswer(reason)

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.complete:
            raise BadAnswer("more than one answer")  # which `feed` turns into `reusable`

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= INTERIM and not self.complete:
            self.status = status

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        if not self.status:
            self.headers = []
            return
        self.complete = True
        if not self._parser.should_keep_alive():
            self.reusable = False
