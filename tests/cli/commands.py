"""The flotilla command in a process of its own."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

PATIENCE = 40.0


class Command:
    """`lines`: what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read(output))

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            self.lines.append(line.decode().rstrip("\r\n"))

    def family(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    async def prints(self, wanted: Callable[[str], bool]) -> str:
        """The first line that is wanted, once it is there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for line in self.lines:
                    if wanted(line):
                        return line
                assert not self._reading.done(), f"it has ended: {self.lines}"
                await asyncio.sleep(0.01)

    async def ends(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        await asyncio.wait_for(self._reading, PATIENCE)
        return code


@asynccontextmanager
async def flotilla(folder: Path, *arguments: str, terminal: bool = False) -> AsyncIterator[Command]:
    """`folder` is where it makes its temporary folders. `terminal`: what it reads and writes is one."""
    ours, its = pty.openpty() if terminal else (None, asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tools.cli.main",
        *arguments,
        stdin=its if terminal else None,
        stdout=its,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    if ours is None:
        assert process.stdout is not None
        command = Command(process, process.stdout)
    else:
        os.close(its)
        command = Command(process, await _read_end(ours))
    try:
        yield command
    finally:
        if process.returncode is None:
            process.terminate()
        await command.ends()


async def _read_end(terminal: int) -> asyncio.StreamReader:
    """What is written to this pseudo-terminal, until nobody has it open any more."""
    reader = _Terminal(limit=1 << 20)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(terminal, "rb", buffering=0))
    return reader


class _Terminal(asyncio.StreamReader):
    def set_exception(self, exc: Exception) -> None:
        """Linux ends a terminal that nobody has open with an error."""
        self.feed_eof() if isinstance(exc, OSError) else super().set_exception(exc)
