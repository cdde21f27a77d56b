"""Starts processes as forks of a fork server that has imported what services need."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import msgspec

from shared.errors import UserError
from tools.supervisor.fork_server import Ended, Order, Report, Started, Unusable
from tools.supervisor.servers import die_with_parent, end

LINE_LIMIT = 1 << 16
"""Bytes of output that are read ahead."""
MAX_REPORT_BYTES = 1 << 16
LOST = "the fork server has ended"
UNKNOWN_END = -int(SIGKILL)
"""Exit code of a process whose fork server ended before it could report one."""


class ForkedProcess:
    def __init__(self, pid: int, output: asyncio.StreamReader) -> None:
        self.pid = pid
        self.output = output
        self.cpu = 0.0
        """Seconds that it used, once it has ended; 0 if that is unknown."""
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def send_signal(self, signal: int) -> None:
        if not self._ended.done():
            with suppress(ProcessLookupError):  # it has ended, and the report is on its way
                os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def on_end(self, code: int, cpu: float = 0.0) -> None:
        if not self._ended.done():
            self.cpu = cpu
            self._ended.set_result(code)


class ForkServer:
    """Started with the first service, and again if it is lost; the processes that it had started are lost with it."""

    def __init__(self, inherited: Sequence[int] = (), folder: Path | None = None) -> None:
        """`inherited`: open files that every process which it starts holds open as long as it runs. `folder`: removed
        by the fork server if this process is killed.
        """
        self._folder = folder
        self._inherited = tuple(inherited)
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._lock = asyncio.Lock()
        self._unusable = ""
        """Why no service can be imported."""
        self._last_number = 0
        self._starting: dict[int, tuple[asyncio.Future[ForkedProcess], asyncio.StreamReader]] = {}
        """By order: who waits for the process, and its output."""
        self._running: dict[int, ForkedProcess] = {}

    async def prepare(self) -> None:
        """Start to import what services need, so that the first service waits for less of it."""
        async with self._lock:
            if self._channel is None and not self._unusable:
                await self._start()

    async def launch(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], title: str = ""
    ) -> ForkedProcess:
        """Run `python -m module arguments`; OSError where there is no room for another process, UserError if
        services cannot be imported.

        `title`: how `ps` shows it, by default the module.
        """
        await self.prepare()
        reading, writing = os.pipe()
        try:
            output = await _reader(reading)
            if self._channel is None:
                raise self._loss()
            self._last_number += 1
            order = Order(self._last_number, title or module, module, list(arguments), dict(environment))
            socket.send_fds(self._channel, [msgspec.json.encode(order)], [writing])
        finally:
            os.close(writing)
        started: asyncio.Future[ForkedProcess] = asyncio.get_running_loop().create_future()
        self._starting[order.number] = started, output
        try:
            return await started
        except asyncio.CancelledError:
            if not started.cancelled() and started.exception() is None:  # both in one turn of the loop
                started.result().kill()
            raise

    async def stop(self) -> None:
        """Kill all of its processes that still run."""
        self._lose()
        if self._process is not None:
            await self._process.wait()

    async def _start(self) -> None:
        if self._process is not None:
            await end(self._process, 0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                # -P: a folder called `services` in the working directory is not imported instead of ours.
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "tools.supervisor.fork_server"),
                    *([] if self._folder is None else [str(self._folder)]),
                    stdin=theirs.fileno(),
                    pass_fds=self._inherited,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except BaseException:
            ours.close()
            raise
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours, self._read_report)

    def _read_report(self) -> None:
        assert self._channel is not None
        try:
            raw = self._channel.recv(MAX_REPORT_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            raw = b""
        if not raw:
            self._lose()
            return
        report: Report = msgspec.json.decode(raw, type=Report)
        match report:
            case Started():
                self._on_started(report)
            case Ended(pid, code, cpu):
                self._running.pop(pid).on_end(code, cpu)
            case Unusable(why):
                self._unusable = why

    def _on_started(self, report: Started) -> None:
        started, output = self._starting.pop(report.number)
        if report.failure:
            if not started.cancelled():
                started.set_exception(OSError(report.failure))
            return
        self._running[report.pid] = process = ForkedProcess(report.pid, output)
        if started.cancelled():
            process.kill()
        else:
            started.set_result(process)

    def _loss(self) -> Exception:
        return UserError(self._unusable) if self._unusable else ConnectionResetError(LOST)

    def _lose(self) -> None:
        if self._channel is None:
            return
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self._channel = None
        for started, _ in self._starting.values():
            if not started.done():
                started.set_exception(self._loss())
        for process in self._running.values():
            process.on_end(UNKNOWN_END)
        self._starting.clear()
        self._running.clear()


async def _reader(file: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb", buffering=0))
    return reader
