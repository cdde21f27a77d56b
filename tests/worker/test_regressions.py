"""Worker: one reload for what has not happened yet, however often it is asked about."""

from services.worker.core import WorkerCore
from services.worker.events import Reload, Tick
from shared.messages.evaluation import Ties
from shared.messages.rounds import Propose
from shared.messages.state import State
from tests.rounds.support import FRAMEWORKS


def test_a_commit_that_is_answered_late_does_not_have_the_state_loaded_again_and_again() -> None:
    """Cycle asks for what is being committed, and again each second; the snapshot takes its time."""
    core = WorkerCore("w", frozenset({0}), 1, FRAMEWORKS)
    core.start(0.0)
    core.handle(State(1, 10, [], []), 0.0)
    reloads, now = 0, 0.0
    for second in range(30):
        effects = core.handle(Propose(1, 1, 1, 11, Ties(), []), float(second))
        while now < second + 1:
            now += 0.05
            effects += core.handle(Tick(), now)
        while any(isinstance(effect, Reload) for effect in effects):
            reloads += 1
            effects = core.handle(State(1, 10, [], []), now)
    assert reloads <= 2, f"{reloads} times all shards are read from Redis in 30 s"
