"""Answers from bytes: what is one, wherever it is cut into pieces, and what is refused."""

import pytest

from shared.http.errors import BadAnswer, Closed
from shared.http.response import MAX_HEAD_BYTES, ResponseParser

LIMIT = 1 << 20
FIXED = b"HTTP/1.1 201 Created\r\nDate: today\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: a\r\nOther: b\r\n\r\n"
)
ANSWERS = {
    "of a length": (FIXED, 201, b"hello", True),
    "in chunks": (CHUNKED, 200, b"hello", True),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "after interim ones": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + FIXED,
        201,
        b"hello",
        True,
    ),
    "the last on its connection": (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        False,
    ),
    "of an old server": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "of an old server that keeps": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
}
WITHOUT_LENGTH = b"HTTP/1.1 200 OK\r\n\r\nhello"


def begun(limit: int = LIMIT) -> ResponseParser:
    parser = ResponseParser()
    parser.begin(limit)
    return parser


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_in_pieces(name: str, size: int) -> None:
    data, status, body, reusable = ANSWERS[name]
    parser = begun()
    for at in range(0, len(data), size):
        assert not parser.complete
        parser.feed(data[at : at + size])
    assert parser.complete
    answer = parser.take()
    assert (answer.status, answer.body, parser.reusable) == (status, body, reusable)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_breaks_off_is_none(name: str) -> None:
    data = ANSWERS[name][0]
    for size in range(len(data)):
        parser = begun()
        parser.feed(data[:size])
        with pytest.raises(BadAnswer if size else Closed):
            parser.end()
        assert not parser.reusable


def test_the_end_of_the_connection_ends_an_answer_without_a_length() -> None:
    parser = begun()
    parser.feed(WITHOUT_LENGTH)
    assert not parser.complete
    parser.end()
    assert (parser.take().body, parser.reusable) == (b"hello", False)


def test_one_answer_after_the_other() -> None:
    parser = ResponseParser()
    for body in (b"one", b"twenty"):
        parser.begin(LIMIT)
        parser.feed(b"HTTP/1.1 200 OK\r\nX-For: %b\r\nContent-Length: %d\r\n\r\n%b" % (body, len(body), body))
        answer = parser.take()
        assert (answer.body, answer.header(b"x-for"), answer.header(b"date")) == (body, body.decode(), None)


@pytest.mark.parametrize("more", [FIXED, b"x", b"\r\n\r\nnonsense"])
def test_more_than_the_answer_ends_the_connection_only(more: bytes) -> None:
    parser = begun()
    parser.feed(FIXED + more)
    assert parser.complete
    assert not parser.reusable
    assert parser.take().body == b"hello"


def test_what_comes_without_a_request_is_refused() -> None:
    parser = ResponseParser()
    with pytest.raises(BadAnswer, match="without a request"):
        parser.feed(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    assert not parser.reusable


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer in HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * MAX_HEAD_BYTES, "headers are longer"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * (MAX_HEAD_BYTES // 20), "headers are longer"),
        (CHUNKED[:-4] + b"X: " + b"y" * (MAX_HEAD_BYTES + 1000), "headers are longer"),
    ],
)
def test_what_is_no_answer(data: bytes, said: str) -> None:
    parser = begun()
    with pytest.raises(BadAnswer, match=said):
        parser.feed(data)
    assert not parser.reusable


def test_a_body_has_a_limit() -> None:
    parser = begun(limit=4)
    with pytest.raises(BadAnswer, match="longer than 4 bytes"):
        parser.feed(FIXED)
    parser = begun(limit=5)
    parser.feed(FIXED)
    assert parser.take().body == b"hello"


def test_the_limit_of_a_stream_is_of_what_was_not_taken() -> None:
    parser = begun(limit=8)
    parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    taken = b""
    for _ in range(10_000):
        parser.feed(b"5\r\nabcde\r\n")
        taken += parser.take_body()
    assert taken == b"abcde" * 10_000
    with pytest.raises(BadAnswer, match="longer than 8 bytes"):
        parser.feed(b"5\r\nabcde\r\n5\r\nabcde\r\n")


def test_a_stream_in_the_smallest_chunks() -> None:
    parser = begun()
    parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    parser.feed(b"1\r\nx\r\n" * 50_000)
    assert parser.take_body() == b"x" * 50_000


def test_a_compressed_answer_is_refused() -> None:
    parser = begun()
    parser.feed(FIXED.replace(b"Date: today", b"Content-Encoding: gzip"))
    with pytest.raises(BadAnswer, match=r"encoded \(gzip\)"):
        parser.take()
    parser = begun()
    parser.feed(FIXED.replace(b"Date: today", b"content-encoding: identity"))
    assert parser.take().body == b"hello"
