"""Pipelines in one process whose decisions are recorded."""

from collections.abc import Sequence

from services.cycle.core import CycleCore
from shared.messages.recording import (
    CommitAnswered,
    DeciderShown,
    PodsShown,
    RecordDecisions,
    RoundDecided,
    SearchDecided,
)
from shared.messages.state import Delta
from testing.inprocess.pipeline import Fate, Pipeline, reliable
from tools.recording.file import Entry

FOREVER = 1e9
RECORDED = (DeciderShown, PodsShown, RoundDecided, SearchDecided, CommitAnswered)


class Overheard:
    """A fate of messages that keeps what a recorder hears: deltas once each, and what the cycle tells."""

    def __init__(self, fate: Fate = reliable) -> None:
        self.entries: list[Entry] = []
        self._fate = fate
        self._newest = 0

    def __call__(self, message: object) -> Sequence[float]:
        if isinstance(message, Delta) and message.seq > self._newest:
            self._newest = message.seq
            self.entries.append(message)
        elif isinstance(message, RECORDED):
            self.entries.append(message)
        return self._fate(message)

    def begin(self, run: Pipeline) -> None:
        """Records from now on."""
        core: CycleCore = run.cycle
        state = run.snapshot.state(frozenset({0}), 1)
        self.entries.clear()
        self._newest = state.seq
        self.entries.append(state)
        run._carry_out_cycle(core.handle(RecordDecisions("recording", FOREVER), run.now))
