"""Processes on this machine: the port that they listen on, their answers over HTTP, their CPU time."""

import asyncio
import re
from dataclasses import dataclass

import psutil

MAX_ANSWER_BYTES = 4 << 20
LOOPBACK = "127.0.0.1"
_STATUS_LINE = re.compile(r"HTTP/1\.[01] (?P<status>\d{3})")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str


def listening_port(pid: int) -> int | None:
    """The port that a process listens on; None if it does not, or does not exist."""
    try:
        connections = psutil.Process(pid).net_connections("inet")
    except psutil.Error:
        return None
    ports = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN and each.laddr]
    return min(ports, default=None)


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process; None if it does not exist."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return times.user + times.system


async def get(port: int, path: str, timeout: float = 2.0) -> Answer | None:
    """GET on this machine; None if there is no answer in time, or it is not HTTP."""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=MAX_ANSWER_BYTES)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
                body = bytearray()
                while len(body) < MAX_ANSWER_BYTES and (chunk := await reader.read(65_536)):
                    body += chunk
            finally:
                writer.close()
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
        return None
    status_line = _STATUS_LINE.match(head)
    return None if status_line is None else Answer(int(status_line["status"]), body.decode(errors="replace"))


class CpuAccounts:
    """The CPU time of processes by name, over all their restarts."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._running: dict[str, tuple[psutil.Process, float]] = {}

    def opened(self, name: str, pid: int) -> None:
        """A process of this name has started; the CPU time of earlier ones stays in the account."""
        self.closed(name)
        self._ended.setdefault(name, 0.0)
        try:
            self._running[name] = (psutil.Process(pid), 0.0)
        except psutil.Error:
            return  # ended already

    def closed(self, name: str, seconds: float = 0.0) -> None:
        """The process has ended. `seconds`: that it used, if that is known; else its last sample counts."""
        if name in self._running:
            self._ended[name] += max(seconds, self._running.pop(name)[1])

    def seconds(self) -> dict[str, float]:
        """User and system time, in the order of each name's first start."""
        for name, (process, last) in self._running.items():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._running[name] = (process, max(last, times.user + times.system))
        running = {name: last for name, (_, last) in self._running.items()}
        return {name: ended + running.get(name, 0.0) for name, ended in self._ended.items()}
