"""An event loop on virtual time, on which single processes can be paused.

When nothing is ready, the time of the next timer has come. What a process has scheduled (its tasks, its timers, the
messages handed to it) belongs to its Gate; while the gate is closed all of it waits, as in a process that was stopped.
"""

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVarTuple

SHORTEST_WAIT = 1e-6
"""Seconds: clocks that began elsewhere round away a shorter one, and who waits so until a deadline would spin."""
MOST_CANCELLATIONS = 60
MOST_STEPS = 1_000_000
"""Callbacks of one run: with more, something spins without time passing."""


Ts = TypeVarTuple("Ts")


class Gate:
    """Of one process, its `owner`. `held`: what became due while it was paused, in order."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(_GATE.set, self)

    def pause(self) -> None:
        self.paused = True

    def resume(self, loop: "VirtualLoop") -> None:
        self.paused = False
        held, self.held = self.held, []
        loop.carry_on(held)


def owner() -> Any:
    """The process that runs just now; None: none."""
    gate = _GATE.get()
    return None if gate is None else gate.owner


async def end_all_tasks() -> list[str]:
    """Cancel every task of any process until it has ended, as asyncio may swallow a cancellation; what is left."""
    for _ in range(MOST_CANCELLATIONS):
        left = [task for task in asyncio.all_tasks() if isinstance(task, _Task) and task.gate is not None]
        if not left:
            return []
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1.0)
    return [f"{task.gate.owner.name}: {task.get_coro()}" for task in left if task.gate is not None]


_GATE: ContextVar[Gate | None] = ContextVar("gate", default=None)
NOBODY = Context()
"""For timers of the world itself: no process's pause holds them up."""


class Stalled(RuntimeError):
    """Nothing is ready and no timer is set: the wait would never end."""


class Spinning(RuntimeError):
    """Callbacks follow each other without an end."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled
        self.now += max(timeout, 0.0)
        return []


class _Handle(asyncio.Handle):
    def _run(self) -> None:
        gate = self._context.get(_GATE)  # type: ignore[attr-defined]
        if gate is not None and gate.paused:
            gate.held.append(self)
        else:
            super()._run()


class _Timer(asyncio.TimerHandle):
    def _run(self) -> None:
        gate = self._context.get(_GATE)  # type: ignore[attr-defined]
        if gate is not None and gate.paused:
            gate.held.append(self)
        else:
            super()._run()


class _Task(asyncio.Task[Any]):
    """Hashes by its number, so that sets of tasks have the same order in each run."""

    _numbers = count()

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(_Task._numbers)
        context = options.get("context")
        self.gate = _GATE.get() if context is None else context.get(_GATE)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """`errors`: exceptions that no task has caught."""

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
        self._push(timer)
        return timer

    def _push(self, timer: asyncio.TimerHandle) -> None:
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]

    def _call_soon(self, callback: Callable[..., Any], args: Any, context: Context | None) -> asyncio.Handle:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Spinning(f"more than {MOST_STEPS} steps by virtual second {self.time():.3f}")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _note(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")
