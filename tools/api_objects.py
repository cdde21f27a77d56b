"""Creates and deletes objects over HTTP, several at a time, at little CPU cost: the CPU belongs to what is measured."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from shared.errors import ClusterError
from testing.simulator.requests import BULK

CONNECTIONS = 32
TIMEOUT = 30.0
BULK_CONNECTIONS = 2
"""Bulk requests at a time: one is made while another is carried out."""
BULK_OBJECTS = 256
"""Objects of a bulk request: the simulator answers nothing else meanwhile."""
BULK_TIMEOUT = 120.0
"""Seconds: such a request also waits for slow watches."""
MAX_RESPONSE_BYTES = 4 << 20
MAX_DETAIL = 500
FINE = range(200, 300)
NOT_FOUND = 404


class _Request(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    objects: int = 1


class ObjectWriter:
    """`created` and `deleted` count objects. For a server without TLS and tokens, such as the simulator."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self.created = 0
        self.deleted = 0
        self._address = (parts.hostname, parts.port)
        self._headers = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n"

    async def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """ClusterError at the first object that is rejected, or not answered in time."""
        await self._send_all(_Request("POST", path, msgspec.json.encode(each)) for each in objects)

    async def create_in_bulk(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """The same, many objects a request: at the simulator only."""
        rest = iter(objects)
        parts = iter(lambda: list(islice(rest, BULK_OBJECTS)), [])
        requests = (_Request("POST", f"{BULK}{path}", msgspec.json.encode(part), len(part)) for part in parts)
        await self._send_all(requests, BULK_CONNECTIONS, BULK_TIMEOUT)

    async def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        await self._send_all(_Request("DELETE", path) for path in paths)

    async def _send_all(
        self, requests: Iterator[_Request], connections: int = CONNECTIONS, timeout: float = TIMEOUT
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(connections):
                    group.create_task(self._send_some(requests, timeout))
        except* (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as errors:
            first = next(iter(errors.exceptions))
            raise ClusterError(f"no response from the API server: {first or 'time-out'}") from errors

    async def _send_some(self, requests: Iterator[_Request], timeout: float) -> None:
        """On a connection of its own, opened for the first request."""
        first = next(requests, None)
        if first is None:
            return
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(*self._address, limit=MAX_RESPONSE_BYTES)
        try:
            for each in chain((first,), requests):
                async with asyncio.timeout(timeout):
                    await self._send(each, reader, writer)
        finally:
            writer.close()

    async def _send(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, body, objects = request
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, answer = await _read_response(reader)
        if status in FINE:
            self.created += objects if method == "POST" else 0
            self.deleted += method == "DELETE"
        elif method != "DELETE" or status != NOT_FOUND:
            text = answer.decode(errors="replace")[:MAX_DETAIL]
            raise ClusterError(f"{method} {path}: status {status} from the API server: {text}")


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    lengths = [int(value) for name, _, value in (h.partition(":") for h in headers) if name.lower() == "content-length"]
    if len(lengths) != 1 or not 0 <= lengths[0] <= MAX_RESPONSE_BYTES:
        raise ValueError("a response without a length")
    return int(status_line.split(" ", 2)[1]), await reader.readexactly(lengths[0])
