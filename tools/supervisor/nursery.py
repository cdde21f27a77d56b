"""python -m tools.supervisor.nursery: imports what services need, and becomes one of them whenever asked.

Importing costs a process most of a second; a fork of one that has done so costs a hundredth of that. The services are
imported one after the other, and each can be started as soon as its own turn has come: the first ones connect, are
elected and list the cluster on one core while the others are imported on another one. Orders and news are JSON on the
socket that is its standard input; an order comes with the file that the new process writes to. When the other end is
closed, or gone, it ends all that it has started and then itself.
"""

import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

import msgspec

from tools.supervisor.servers import die_with_parent

PRELOADED = ("snapshot", "queue", "watcher", "cycle", "worker", "binder")
"""In this order: who is to hear the watcher's first listing comes before it, and need not ask for another one."""
LOADED_FIRST = frozenset({*(f"services.{name}" for name in PRELOADED), "testing.simulator"})
"""Modules that are imported here before a process becomes them; not every pipeline has a simulator."""
ENDED_BY_ITS_CHANNEL = (signal.SIGTERM, signal.SIGINT)
"""Signals to all processes at once: services that end in good order are not to lose their parent meanwhile."""
MOST_BYTES = 1 << 20
"""Of an order: mostly the environment of the new process."""


class Order(msgspec.Struct, frozen=True):
    """`python -m module arguments`, in this environment."""

    number: int
    module: str
    arguments: list[str]
    environment: dict[str, str]


class Born(msgspec.Struct, frozen=True, tag=True):
    """The order of this number runs as this process, or (`failure`) does not."""

    number: int
    pid: int = 0
    failure: str = ""


class Gone(msgspec.Struct, frozen=True, tag=True):
    """The exit code, or the negative number of the signal that ended it."""

    pid: int
    code: int


News = Born | Gone
"""What is told to whoever orders."""


def main() -> None:
    channel = socket.socket(fileno=os.dup(0))
    for number in ENDED_BY_ITS_CHANNEL:
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # while modules are imported next to nothing is garbage
    order = _serve(channel)
    if order is not None:
        channel.close()
        _become(order)


def _load(module: str) -> None:
    """Imports a service. What is loaded stays: no fork looks through it for garbage, which would copy its pages."""
    importlib.import_module(f"{module}.service")
    gc.freeze()


def _serve(channel: socket.socket) -> Order | None:
    """The order that this process, a fork by now, is to carry out; None once there is nothing more to do.

    Imports while there is no order.
    """
    unloaded = [f"services.{name}" for name in PRELOADED]
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, _notice)
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
                    _tell_of_the_gone(channel, children)
                    continue
                order = _next_order(channel, children)
                if order is None:
                    _end(children)
                    return None
                if isinstance(order, Order):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    woken.close()
                    wake.close()
                    return order


def _notice(number: int, frame: FrameType | None) -> None:
    """It is the wake-up that counts."""


def _next_order(channel: socket.socket, children: set[int]) -> Order | int | None:
    """In the fork: the order. Here: its pid, zero if there is none. None: nobody orders any more."""
    try:
        raw, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 1)
    except ConnectionError:
        return None
    if not raw:
        return None
    order = msgspec.json.decode(raw, type=Order)
    if order.module in LOADED_FIRST:
        _load(order.module)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY_ITS_CHANNEL)  # what is sent to the fork is not to be lost
    try:
        pid = os.fork()
    except OSError as cause:
        _tell(channel, Born(order.number, failure=str(cause)))
        pid = 0
    else:
        if pid == 0:
            for number in ENDED_BY_ITS_CHANNEL:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY_ITS_CHANNEL)
            die_with_parent()
            if os.getppid() != parent:
                os._exit(1)
            os.setsid()
            _write_to(files[0])
            return order
        children.add(pid)
        _tell(channel, Born(order.number, pid))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY_ITS_CHANNEL)
    for file in files:
        os.close(file)
    return pid


def _write_to(file: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(file)


def _become(order: Order) -> None:
    gc.enable()
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv = [order.module, *order.arguments]
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


def _tell_of_the_gone(channel: socket.socket, children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _tell(channel, Gone(pid, os.waitstatus_to_exitcode(status)))


def _tell(channel: socket.socket, news: News) -> None:
    with suppress(OSError):  # nobody is there to hear it: the next look at the channel shows that
        channel.send(msgspec.json.encode(news))


def _end(children: set[int]) -> None:
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
