"""python -m tools.supervisor.fork_server: imports what services need, and forks a process for each order.

Importing costs a process most of a second; a fork of one that has imported costs a hundredth of that. Services are
imported one after the other, and each can start once its own import is done: the first ones connect, are elected and
list the cluster on one core while others are imported on another one. Orders and reports are JSON on the socket that is
its standard input; an order comes with the file that the new process writes to. When the other end is closed, because
the supervisor stops it or was killed, the fork server kills the processes that it has started, removes the pipeline's
folder, which is its argument, and exits.
"""

import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from tools.supervisor.process_title import set_title
from tools.supervisor.servers import die_with_parent

PRELOADED = ("snapshot", "queue", "watcher", "cycle", "worker", "binder")
"""In this order: services that need the watcher's first listing start before it, and need not ask for another one."""
IMPORTED_FIRST = frozenset({*(f"services.{name}" for name in PRELOADED), "testing.simulator"})
"""Modules that are imported before the fork; not every pipeline has a simulator."""
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The end of its channel ends the fork server: on a signal to all processes, services must not lose their parent."""
REMOVAL_PATIENCE, REMOVAL_PAUSE = 5.0, 0.05
"""Seconds to remove the folder of a supervisor that has ended, and between two attempts."""
MAX_ORDER_BYTES = 1 << 20
"""Mostly the environment of the new process."""


class Order(msgspec.Struct, frozen=True):
    """`python -m module arguments`, in this environment. `title`: how `ps` shows the process."""

    number: int
    title: str
    module: str
    arguments: list[str]
    environment: dict[str, str]


class Started(msgspec.Struct, frozen=True, tag=True):
    """The order of this number runs as this process, or could not be started (`failure`)."""

    number: int
    pid: int = 0
    failure: str = ""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The exit code, or the negative number of the signal that ended the process. `cpu`: seconds that it used."""

    pid: int
    code: int
    cpu: float


class Unusable(msgspec.Struct, frozen=True, tag=True):
    """Services cannot be imported: the fork server ends, and a new one would not help."""

    why: str


Report = Started | Ended | Unusable


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    channel = socket.socket(fileno=os.dup(0))
    set_title("fork server")
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # while modules are imported next to nothing is garbage
    try:
        order = _serve(channel)
    except ImportError as cause:
        _report(channel, Unusable(f"{cause}: the installation is incomplete; in a clone of Flotilla, run make setup"))
        order = None
    if order is None:
        if folder is not None:
            _remove(folder)
    else:
        channel.close()
        gc.enable()
        os.environ.clear()
        os.environ.update(order.environment)
        set_title(order.title)
        sys.argv = [order.module, *order.arguments]
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)


def _remove(folder: Path) -> None:
    """Remove the pipeline's folder, which holds passwords. Servers that are ending may still write into it."""
    ends = time.monotonic() + REMOVAL_PATIENCE
    while folder.exists() and time.monotonic() < ends:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(REMOVAL_PAUSE)


def _load(module: str) -> None:
    """Import a service. Frozen objects are skipped by the garbage collector of forks, which would copy their pages."""
    importlib.import_module(f"{module}.service")
    gc.freeze()


def _serve(channel: socket.socket) -> Order | None:
    """Import while there is no order. Returns the order in the fork that carries it out, None at the end."""
    unloaded = [f"services.{name}" for name in PRELOADED]
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, _ignore)
    signal.set_wakeup_fd(wake.fileno())
    children: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = selector.select(0 if unloaded else None)
            if not ready and unloaded:
                _load(unloaded.pop(0))
                if not unloaded:
                    gc.enable()
            for key, _ in ready:
                if key.fileobj is woken:
                    with suppress(BlockingIOError):
                        woken.recv(4096)
                    _report_ended(channel, children)
                    continue
                order = _next_order(channel, children)
                if order is None:
                    _kill(children)
                    return None
                if isinstance(order, Order):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    woken.close()
                    wake.close()
                    return order


def _ignore(number: int, frame: FrameType | None) -> None:
    """Only the wake-up matters."""


def _next_order(channel: socket.socket, children: set[int]) -> Order | int | None:
    """In the fork: its order. In the fork server: the fork's pid, 0 if it failed; None at the end of the channel."""
    try:
        raw, files, _, _ = socket.recv_fds(channel, MAX_ORDER_BYTES, 1)
    except ConnectionError:
        return None
    if not raw:
        return None
    order = msgspec.json.decode(raw, type=Order)
    for module in [order.module, *(f"services.{argument}" for argument in order.arguments)]:
        if module in IMPORTED_FIRST:
            _load(module)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)  # so that the fork loses no signal
    try:
        pid = os.fork()
    except OSError as cause:
        _report(channel, Started(order.number, failure=str(cause)))
        pid = 0
    else:
        if pid == 0:
            for number in IGNORED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
            die_with_parent()
            if os.getppid() != parent:
                os._exit(1)
            os.setsid()
            _redirect_output(files[0])
            return order
        children.add(pid)
        _report(channel, Started(order.number, pid))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    for file in files:
        os.close(file)
    return pid


def _redirect_output(file: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(file)


def _report_ended(channel: socket.socket, children: set[int]) -> None:
    while children:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _report(channel, Ended(pid, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))


def _report(channel: socket.socket, report: Report) -> None:
    with suppress(OSError):  # the other end is closed: the next read of the channel shows that
        channel.send(msgspec.json.encode(report))


def _kill(children: set[int]) -> None:
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
