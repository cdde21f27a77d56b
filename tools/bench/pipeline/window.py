"""The time that is measured, from what cycle and binders tell: it is listened to, and costs them nothing."""

import asyncio
import time
from collections.abc import Callable, Mapping

from shared.bus import Bus, Envelope
from shared.bus.subjects import QUEUE_OUTCOMES, SNAPSHOT_BOUND
from shared.messages.binding import BindingOutcomes
from shared.messages.queue import Outcomes, Verdict


class Window:
    """Opens when `warm_up` pods are decided; `closed` when all are decided, or has been `close`d."""

    def __init__(
        self, pods: int, warm_up: int, cpu: Callable[[], Mapping[str, float]], opened: Callable[[], None]
    ) -> None:
        """`opened` is called when the clock starts."""
        self.decided: set[str] = set()
        self.bound: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.closed = asyncio.Event()
        self.began: float | None = None
        self.seconds = 0.0
        self.bound_seconds = 0.0
        self.pods = 0
        self.cpu_when_closed: Mapping[str, float] = {}
        self._all = pods
        self._warm_up = warm_up
        self._read_cpu = cpu
        self._opened = opened
        self._before = 0
        self._cpu: Mapping[str, float] = {}

    async def listen(self, bus: Bus, *, to_binders: bool) -> None:
        await bus.subscribe(QUEUE_OUTCOMES, Outcomes, self._on_outcomes)
        if to_binders:
            await bus.subscribe(SNAPSHOT_BOUND, BindingOutcomes, self._on_bound)

    def cpu(self) -> dict[str, float]:
        """Seconds by process since the clock started."""
        return {name: seconds - self._cpu.get(name, 0.0) for name, seconds in self._read_cpu().items()}

    def close(self) -> None:
        if self.began is not None and not self.closed.is_set():
            self.seconds = time.monotonic() - self.began
            self.pods = len(self.decided) - self._before
            self.cpu_when_closed = self.cpu()
            self.closed.set()

    def _on_outcomes(self, message: Outcomes, envelope: Envelope) -> None:
        for outcome in message.outcomes:
            if outcome.verdict in (Verdict.DECIDED, Verdict.SUPERSEDED):
                self.decided.add(outcome.uid)
            else:
                self.refusals[outcome.uid] = outcome.message
        if self.began is None and len(self.decided) >= self._warm_up:
            self._open()
        if len(self.decided) >= self._all:
            self.close()

    def _open(self) -> None:
        self._opened()
        self._cpu = self._read_cpu()
        self._before = len(self.decided)
        self.began = time.monotonic()

    def _on_bound(self, message: BindingOutcomes, envelope: Envelope) -> None:
        before = len(self.bound)
        self.bound.update(outcome.uid for outcome in message.outcomes if outcome.bound)
        if len(self.bound) > before and self.began is not None:
            self.bound_seconds = time.monotonic() - self.began
