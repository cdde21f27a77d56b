"""Creating objects over HTTP, several at a time, with little work for each: the CPU is for those who are watched."""

import asyncio
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from shared.errors import ClusterError
from tools.cli.demo.workload import Object

AT_ONCE = 32
PATIENCE = 30.0
CREATED = 201
LONGEST_ANSWER = 4 << 20
LONGEST_COMPLAINT = 500


class Creator:
    """`created` counts the objects that exist now."""

    def __init__(self, server: str) -> None:
        """Of a server that asks for no token, as the embedded one."""
        parts = urlsplit(server)
        self.created = 0
        self._address = (parts.hostname, parts.port)
        self._headers = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n"

    async def create(self, path: str, objects: Iterable[Object]) -> None:
        """All of them; ClusterError on the first that is refused or not answered."""
        waiting = iter(objects)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._create_some(path, waiting))
        except* (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as errors:
            first = next(iter(errors.exceptions))
            raise ClusterError(f"the API server does not answer a POST to {path}: {first or 'time-out'}") from errors

    async def _create_some(self, path: str, waiting: Iterator[Object]) -> None:
        """On a connection of its own, which is opened when there is something to create."""
        first = next(waiting, None)
        if first is None:
            return
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*self._address, limit=LONGEST_ANSWER)
        try:
            await self._post(path, first, reader, writer)
            for each in waiting:
                await self._post(path, each, reader, writer)
        finally:
            writer.close()

    async def _post(self, path: str, each: Object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = msgspec.json.encode(each)
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(PATIENCE):
            status, answer = await _read_answer(reader)
        if status != CREATED:
            text = answer.decode(errors="replace")[:LONGEST_COMPLAINT]
            raise ClusterError(f"the API server answers {status} to a POST to {path}: {text}")
        self.created += 1


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    lengths = [int(value) for name, _, value in (h.partition(":") for h in headers) if name.lower() == "content-length"]
    if len(lengths) != 1 or not 0 <= lengths[0] <= LONGEST_ANSWER:
        raise ValueError("an answer without a length")
    return int(status_line.split(" ", 2)[1]), await reader.readexactly(lengths[0])
