"""Who a pipeline on this host is in Leases: the same after a crash, and never the same as another pipeline's.

Whoever finds its own identity in a Lease takes the Lease at once, so two that live must never share one. No clock
decides that, but two locks of the system on files, which end with the processes that hold them:

    SLOT.lock      held by the supervisor alone: this slot's pipeline runs; names its folder, which a later supervisor
                   removes if this one is killed
    SLOT.id        held by the supervisor and every service that it has started; holds the identity, drawn once

Where the first is free and the second is not, services of a supervisor that was killed are still ending: they are
waited for. An identity is drawn at random and only good until the host starts again, so neither a copied disk nor a
folder that several hosts share brings it to another host.
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

MOST_SLOTS = 16
"""Pipelines of one user on one host that have an identity which outlives a crash; further ones have none."""
ENDING_PATIENCE = 5.0
"""Seconds for services of a supervisor that was killed: they end within 4."""
LOOK = 0.02
LONGEST_PATH = 4096
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """`inherited`: open files for services to inherit, so that the identity is held while any of them lives."""

    name: str
    inherited: tuple[int, ...] = ()
    lock: int | None = None

    def owns(self, folder: Path) -> None:
        """Whoever has the slot next removes this folder, if nobody else has."""
        if self.lock is not None:
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, os.fsencode(folder), 0)


@asynccontextmanager
async def host_identity(folder: Path | None = None) -> AsyncIterator[HostIdentity]:
    """The identity is ours alone inside. Afterwards nothing is left of it: Leases have been given back."""
    slots = Path(tempfile.gettempdir()) if folder is None else folder
    for number in range(MOST_SLOTS):
        lock, identity = (slots / f"flotilla-{os.getuid()}-{number}.{kind}" for kind in ("lock", "id"))
        alive = _held(lock)
        if alive is None:
            continue
        try:
            held = await _locked_soon(identity)
            if held is None:
                continue
            try:
                await asyncio.to_thread(_remove_folder_of, alive, slots)
                yield HostIdentity(_named(_drawn(held)), (held,), alive)
                return
            finally:
                _remove(identity)
                os.close(held)
        finally:
            _remove(lock)
            os.close(alive)
    yield HostIdentity(_named(f"{os.getpid()}-{secrets.token_hex(4)}"))


async def _locked_soon(path: Path) -> int | None:
    """None if the file is not ours to use, or its holders do not end in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ENDING_PATIENCE
    while loop.time() < deadline:
        try:
            return _locked(path)
        except BlockingIOError:
            await asyncio.sleep(LOOK)
        except OSError:
            return None
    return None


def _held(path: Path) -> int | None:
    try:
        return _locked(path)
    except OSError:
        return None


def _locked(path: Path) -> int:
    """The file, open and locked. BlockingIOError while another one holds it, OSError where it is not ours to use."""
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
    """What was drawn when the file was made."""
    drawn = os.pread(file, 64, 0).decode("ascii", errors="replace")
    if len(drawn) != 32:
        drawn = secrets.token_hex(16)
        os.ftruncate(file, 0)
        os.pwrite(file, drawn.encode(), 0)
    with suppress(OSError):
        drawn += BOOT.read_text()
    return hashlib.sha256(drawn.encode()).hexdigest()[:12]


def _remove_folder_of(lock: int, parent: Path) -> None:
    """What a supervisor that was killed has left. Its services have ended, as nobody holds its identity."""
    folder = Path(os.fsdecode(os.pread(lock, LONGEST_PATH, 0)))
    if folder.parent == parent and folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def _named(what: str) -> str:
    return f"{socket.gethostname()}-{what}"


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
