"""Asking a process on this machine over HTTP, and where it listens."""

import asyncio
import re
from dataclasses import dataclass

import psutil

LONGEST_ANSWER = 4 << 20
LOOPBACK = "127.0.0.1"
_STATUS_LINE = re.compile(r"HTTP/1\.[01] (?P<status>\d{3})")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str


def listening_port(pid: int) -> int | None:
    """The port that a process listens on; none while it does not, or is gone."""
    try:
        connections = psutil.Process(pid).net_connections("inet")
    except psutil.Error:
        return None
    ports = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN and each.laddr]
    return min(ports, default=None)


async def get(port: int, path: str, patience: float = 2.0) -> Answer | None:
    """What it answers to a GET; none where it does not answer in time, or not in HTTP."""
    try:
        async with asyncio.timeout(patience):
            return await _get(port, path)
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        return None


async def _get(port: int, path: str) -> Answer:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=LONGEST_ANSWER)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
        body = bytearray()
        while len(body) < LONGEST_ANSWER and (chunk := await reader.read(65_536)):
            body += chunk
    finally:
        writer.close()
    status_line = _STATUS_LINE.match(head)
    if status_line is None:
        raise ValueError(f"no HTTP: {head[:80]!r}")
    return Answer(int(status_line["status"]), body.decode(errors="replace"))
