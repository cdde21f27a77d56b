"""Composite groups that move to other trees, go, and come again."""

import random

import pytest

from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState
from shared.model.objects import ClusterObject
from tests.queue.support import FIT, NODE_ADDED, Queue
from tests.queue.test_group_trees import add, composite, group, lose, see

STEPS = 120


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_groups_that_a_composite_group_leaves_behind_wait_for_as_many_as_they_need(how: str) -> None:
    queue = Queue(BackoffPolicy(maximum=0))
    below = composite("b", 1, "root")
    see(queue, composite("root", 2), below, group("g", 1, "b"), group("h", 1, "root"), group("k", 1, "root"))
    add(queue, "g-0", "h-0")
    assert queue.take() == ["g-0", "h-0"]
    queue.decide("g-0")
    queue.reject("h-0", plugins=FIT)
    add(queue, "k-0")
    assert queue.take() == ["k-0"], "h is rejected, and with b one more is enough"
    queue.reject("k-0", plugins=FIT)
    queue.change(NODE_ADDED)
    if how == "deleted":
        lose(queue, below)
    else:
        see(queue, composite("b", 1))
    assert {str(queue.state(name)) for name in ("h-0", "k-0")} == {str(PodState.ACTIVE)}
    batch = queue.ask()
    assert batch is not None
    assert {each.gang.key.rpartition("/")[2] for each in batch.pods if each.gang} == {"root"}, "both or none"
    assert len(batch.pods) == 2


@pytest.mark.parametrize("case", range(4))
def test_groups_may_come_move_and_go_in_any_order(case: int) -> None:
    """Parents are any of five groups: the group itself, one that does not exist, one of its own tree. The queue checks
    after each event that every pod is where it belongs.
    """
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    queue = Queue(BackoffPolicy(maximum=dice.choice([0.0, 1.0])))
    known: dict[str, ClusterObject] = {}
    with_cycle: list[str] = []
    for step in range(STEPS):
        name = dice.choice("ABCDExyz")
        match dice.randrange(9):
            case 0 | 1 | 2:
                make = composite if name.isupper() else group
                now = make(name, dice.choice([None, 1, 1, 2]), dice.choice(["", *"AABCD"]))
                see(queue, now)
                known[name] = now
            case 3 if name in known:
                lose(queue, known.pop(name))
            case 4 | 5:
                add(queue, f"{dice.choice('xyz')}-{step}")
            case 6:
                with_cycle += queue.take()
            case 7 if with_cycle:
                taken, with_cycle = with_cycle, []
                decide = dice.choice([queue.decide, queue.reject, queue.fail])
                decide(*taken)
            case _:
                queue.change(NODE_ADDED)
        queue.at(queue.now + dice.choice([0.0, 0.0, 0.1, 40.0]))
