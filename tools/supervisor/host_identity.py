"""The identity of a pipeline on this host in Leases: the same after a crash, and never that of another pipeline.

A process that finds its own identity in a Lease takes the Lease at once, so two running pipelines must never share one.
That rests on file locks, not on clocks; the system releases them when the processes that hold them end:

    SLOT.lock      held by the supervisor: this slot's pipeline runs. Contains the path of its folder, which a later
                   supervisor removes if this one is killed
    SLOT.id        held by the supervisor and every service that it has started. Contains the identity, drawn once

If the first is free and the second is not, services of a killed supervisor are still ending, and we wait for them. An
identity is random and valid only until the host reboots, so neither a copied disk nor a folder that several hosts share
brings it to another host.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.supervisor.servers import FOLDER_PREFIX

MAX_SLOTS = 16
"""Pipelines of one user on one host whose identity survives a crash; further ones draw a new one."""
END_TIMEOUT = 5.0
"""Seconds for services of a killed supervisor to end; they need up to 4."""
POLL = 0.02
MAX_PATH_BYTES = 4096
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """`inherited`: open files that services inherit, so that the identity is held while any of them runs."""

    name: str
    inherited: tuple[int, ...] = ()
    lock: int | None = None

    def own(self, folder: Path) -> None:
        """Have the slot's next supervisor remove this folder, if it still exists."""
        if self.lock is not None:
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, os.fsencode(folder), 0)


@asynccontextmanager
async def host_identity(folder: Path | None = None) -> AsyncIterator[HostIdentity]:
    """Hold an identity. It is discarded at the end, when all Leases have been released."""
    slots = Path(tempfile.gettempdir()) if folder is None else folder
    for number in range(MAX_SLOTS):
        lock, identity = (slots / f"flotilla-{os.getuid()}-{number}.{kind}" for kind in ("lock", "id"))
        try:
            alive = _locked(lock)
        except OSError:
            continue
        try:
            held = await _locked_in_time(identity)
            if held is None:
                continue
            try:
                await asyncio.to_thread(_remove_folder_of, alive, slots)
                yield HostIdentity(f"{socket.gethostname()}-{_drawn(held)}", (held,), alive)
                return
            finally:
                _remove(identity)
                os.close(held)
        finally:
            _remove(lock)
            os.close(alive)
    yield HostIdentity(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")


async def _locked_in_time(path: Path) -> int | None:
    """None if we may not use the file, or its holders do not end in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_TIMEOUT
    while loop.time() < deadline:
        try:
            return _locked(path)
        except BlockingIOError:
            await asyncio.sleep(POLL)
        except OSError:
            return None
    return None


def _locked(path: Path) -> int:
    """Open and lock the file. BlockingIOError while another process holds it, OSError if we may not use it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(path)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() or not os.path.samestat(found, path.stat(follow_symlinks=False)):
            raise BlockingIOError(path)  # its holder has just removed it
    except OSError:
        os.close(file)
        raise
    return file


def _drawn(file: int) -> str:
    """The identity in the file, drawn if the file is new."""
    drawn = os.pread(file, 64, 0).decode("ascii", errors="replace")
    if len(drawn) != 32:
        drawn = secrets.token_hex(16)
        os.ftruncate(file, 0)
        os.pwrite(file, drawn.encode(), 0)
    with suppress(OSError):
        drawn += BOOT.read_text()
    return hashlib.sha256(drawn.encode()).hexdigest()[:12]


def _remove_folder_of(lock: int, parent: Path) -> None:
    """Remove the folder of a killed supervisor. Its services have ended, because its identity is free."""
    folder = Path(os.fsdecode(os.pread(lock, MAX_PATH_BYTES, 0)))
    if folder.parent == parent and folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
