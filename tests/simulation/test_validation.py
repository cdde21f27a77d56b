"""Every core validates itself after each event, if its process is asked to (FLOTILLA_VALIDATE)."""

from unittest.mock import patch

import pytest

from services.binder.core import BinderCore
from services.binder.eviction_core import EvictionCore
from services.cycle.core import CycleCore
from services.queue.core import QueueCore
from services.snapshot.core import SnapshotCore
from services.watcher.core import WatcherCore
from services.worker.core import WorkerCore
from shared.errors import InvariantBroken
from testing.simulation.drawing import draw
from testing.simulation.running import play

CORES = (WatcherCore, QueueCore, SnapshotCore, CycleCore, WorkerCore, BinderCore, EvictionCore)


@pytest.mark.parametrize("core", CORES)
def test_a_core_that_finds_itself_invalid_ends_its_process(core: type) -> None:
    with patch.object(core, "validate", side_effect=InvariantBroken(f"{core.__name__} is invalid")):
        result = play(draw(1, scene="plain-calm", seconds=2.0))
    assert f"{core.__name__} is invalid" in result.wrong
