"""The flotilla command in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

PATIENCE = 40.0


class Command:
    """`lines`: what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

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
async def flotilla(folder: Path, *arguments: str) -> AsyncIterator[Command]:
    """`folder` is where it makes its temporary folders."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tools.cli.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    command = Command(process)
    try:
        yield command
    finally:
        if process.returncode is None:
            process.terminate()
        await command.ends()
