"""Starting services as forks of a process that has imported what they need."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL

import msgspec

from tools.supervisor.nursery import Born, Gone, News, Order
from tools.supervisor.servers import die_with_parent, end

LINE_LIMIT = 1 << 16
"""Bytes of output that are read ahead."""
LOST = "the process that starts services has ended"
UNKNOWN_END = -int(SIGKILL)
"""Of a process whose parent was lost before it could tell."""


class Offspring:
    """A service's process."""

    def __init__(self, pid: int, output: asyncio.StreamReader) -> None:
        self.pid = pid
        self.output = output
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def send_signal(self, signal: int) -> None:
        if not self._ended.done():
            with suppress(ProcessLookupError):  # it has ended, and word of it is on its way
                os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def gone(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


class Nursery:
    """Started with the first service, and again if it is lost; what it had started is lost with it."""

    def __init__(self, inherited: Sequence[int] = ()) -> None:
        """`inherited`: open files that whatever it starts holds open as long as it runs."""
        self._inherited = tuple(inherited)
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None
        self._lock = asyncio.Lock()
        self._numbers = 0
        self._awaited: dict[int, asyncio.Future[Offspring]] = {}
        self._outputs: dict[int, asyncio.StreamReader] = {}
        self._running: dict[int, Offspring] = {}

    async def prepare(self) -> None:
        """Begins to import what services need, so that the first of them waits for less of it."""
        async with self._lock:
            if self._channel is None:
                await self._start()

    async def launch(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Offspring:
        """`python -m module arguments`; OSError where there is no room for another process."""
        await self.prepare()
        reading, writing = os.pipe()
        try:
            output = await _reader(reading)
            answer = self._order(module, arguments, environment, writing, output)
        finally:
            os.close(writing)
        return await answer

    async def stop(self) -> None:
        """Whatever it has started and still runs is killed."""
        self._lose()
        if self._process is not None:
            await self._process.wait()

    async def _start(self) -> None:
        if self._process is not None:
            await end(self._process, 0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._channel = ours
        with theirs:
            # -P: a folder called `services` where somebody happens to stand is not taken for ours.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tools.supervisor.nursery"),
                stdin=theirs.fileno(),
                pass_fds=self._inherited,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        asyncio.get_running_loop().add_reader(ours, self._hear)

    def _order(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        writing: int,
        output: asyncio.StreamReader,
    ) -> asyncio.Future[Offspring]:
        if self._channel is None:
            raise ConnectionResetError(LOST)
        self._numbers += 1
        order = Order(self._numbers, module, list(arguments), dict(environment))
        socket.send_fds(self._channel, [msgspec.json.encode(order)], [writing])
        answer: asyncio.Future[Offspring] = asyncio.get_running_loop().create_future()
        self._awaited[order.number], self._outputs[order.number] = answer, output
        return answer

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            raw = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            raw = b""
        if not raw:
            self._lose()
            return
        news: News = msgspec.json.decode(raw, type=News)
        match news:
            case Born(number=number, pid=pid, failure=failure):
                answer, output = self._awaited.pop(number), self._outputs.pop(number)
                if failure:
                    if not answer.cancelled():
                        answer.set_exception(OSError(failure))
                    return
                self._running[pid] = offspring = Offspring(pid, output)
                if answer.cancelled():
                    offspring.kill()
                else:
                    answer.set_result(offspring)
            case Gone(pid=pid, code=code):
                self._running.pop(pid).gone(code)

    def _lose(self) -> None:
        if self._channel is None:
            return
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self._channel = None
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(LOST))
        for offspring in self._running.values():
            offspring.gone(UNKNOWN_END)
        self._awaited.clear()
        self._outputs.clear()
        self._running.clear()


async def _reader(file: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb", buffering=0))
    return reader
