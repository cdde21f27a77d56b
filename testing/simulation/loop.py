"""An event loop on virtual time, on which single processes can be paused; and seeded randomness.

When nothing is ready, time jumps to the next timer. All callbacks of a process (tasks, timers, messages handed to it)
belong to its Gate and are held back while the gate is closed, as in a process stopped by SIGSTOP.
"""

import asyncio
import heapq
import random
import selectors
import zlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

SHORTEST_WAIT = 1e-6
"""Seconds. Clocks of processes round a shorter wait to zero, and a wait for a deadline would spin."""
MAX_CANCELLATIONS = 60
MAX_STEPS = 1_000_000
"""Callbacks in one run; more than any run needs that does not spin."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Gate:
    """The gate of a process, its `owner`. `held`: callbacks that became due while it was paused, in order."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(_GATE.set, self)

    def resume(self, loop: "VirtualLoop") -> None:
        self.paused = False
        held, self.held = self.held, []
        loop.carry_on(held)


def owner() -> Any:
    """The process whose callback is running, if any."""
    gate = _GATE.get()
    return None if gate is None else gate.owner


async def end_all_tasks() -> list[str]:
    """Cancel all tasks of processes until they end, as asyncio may swallow a cancellation; returns those left."""
    for _ in range(MAX_CANCELLATIONS):
        left = [task for task in asyncio.all_tasks() if isinstance(task, _Task) and task.gate is not None]
        if not left:
            return []
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1.0)
    return [f"{task.gate.owner.name}: {task.get_coro()}" for task in left if task.gate is not None]


_GATE: ContextVar[Gate | None] = ContextVar("gate", default=None)
WORLD = Context()
"""For timers of the world itself, which are held back by no gate."""


class Stalled(RuntimeError):
    """Nothing is ready and no timer is set."""


class Spinning(RuntimeError):
    """Callbacks run endlessly."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled
        self.now += max(timeout, 0.0)
        return []


class _Gated(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        gate = self._context.get(_GATE)  # type: ignore[attr-defined]
        if gate is not None and gate.paused:
            gate.held.append(self)
        else:
            super()._run()


class _Timer(_Gated, asyncio.TimerHandle):
    __slots__ = ()


class _Task(asyncio.Task[Any]):
    """Hashes by number, so that sets of tasks iterate in the same order in every run."""

    _numbers = count()

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(_Task._numbers)
        context = options.get("context")
        self.gate = _GATE.get() if context is None else context.get(_GATE)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """`errors`: uncaught exceptions of tasks."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.errors: list[str] = []
        self._steps = 0
        self.set_exception_handler(self._note)
        self.set_task_factory(lambda loop, coro, **options: _Task(coro, loop=loop, **options))

    def time(self) -> float:
        return self._virtual.now

    def carry_on(self, held: list[asyncio.Handle]) -> None:
        self._ready.extend(held)  # type: ignore[attr-defined]

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(max(when, self.time() + SHORTEST_WAIT), callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _call_soon(self, callback: Callable[..., Any], args: Any, context: Context | None) -> asyncio.Handle:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Spinning(f"more than {MAX_STEPS} steps by virtual second {self.time():.3f}")
        handle = _Gated(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _note(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")


class Dice:
    """Randomness by purpose: each has its own stream, so that drawing for one does not shift another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, *purpose: object) -> random.Random:
        """The stream of this purpose."""
        name = " ".join(map(str, purpose))
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self.seed} {name}")
        return stream

    def pick(self, salt: object, things: Iterable[T], name: Callable[[T], str]) -> T | None:
        """Choose one by rendezvous hashing of names: the choice changes only when the chosen one is absent."""
        return min(things, key=lambda each: zlib.crc32(f"{self.seed} {salt} {name(each)}".encode()), default=None)
