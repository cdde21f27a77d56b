"""The commands that look into a Flotilla, run in this process beside the services they ask."""

import asyncio
from typing import NamedTuple

import pytest

from tests.bus.support import PREFIX
from tools.cli.main import main
from tools.supervisor.servers import NatsServer


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Operator:
    """Types commands. The server's URL, which holds a password, comes by the environment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def reaches(self, server: NatsServer) -> None:
        self._monkeypatch.setenv("FLOTILLA_NATS_URL", server.url)
        self._monkeypatch.setenv("FLOTILLA_PREFIX", PREFIX)

    async def types(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code = await asyncio.to_thread(main, arguments)
        return Said(code, *self._capsys.readouterr())
