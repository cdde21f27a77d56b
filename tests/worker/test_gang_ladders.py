"""A worker's part in a search for victims of a gang: it is made in steps, between which the worker does other work."""

from collections.abc import Sequence

import pytest

from services.worker import gang_preempting
from services.worker.core import WorkerCore
from services.worker.events import Answer, Effect, Tick
from shared.framework.judge import Judge
from shared.messages.preemption import Candidates, GangAsk, Preempt, PreemptAsk
from shared.messages.state import NodeRemoved, State
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod
from testing.builders import node, pod
from tests.rounds.support import answers, ask_for, delta, placed, propose, small_pod, state, worker

MEMBER = pod("member").request(cpu=1).priority(10).build()
NODES, PODS = 6, 3


def full(keys: Sequence[str] = ()) -> State:
    nodes: list[Node] = []
    low: list[tuple[Pod, str]] = []
    for i in range(NODES):
        name = f"n{i}"
        nodes.append(node(name).capacity(cpu=PODS, memory="8Gi", pods=9).label(rack=f"r{i // 2}").build())
        low += [(pod(f"low{i}-{k}").request(cpu=1).priority(k + i % 2).build(), name) for k in range(PODS)]
    return state(1, *nodes, pods=low)


def search(*keys: str, ask: int = 1) -> Preempt:
    asked = PreemptAsk("member", DEFAULT_SCHEDULER, MEMBER, members=4)
    return Preempt(1, 1, ask, 1, [asked], GangAsk(10, keys=list(keys)))


def whole(*keys: str) -> Candidates:
    core = worker()
    core.handle(full(), 0.0)
    return candidates(core.handle(search(*keys), 0.0))


def candidates(effects: Sequence[Effect]) -> Candidates:
    (answer,) = effects
    assert isinstance(answer, Answer) and isinstance(answer.message, Candidates)
    return answer.message


def searching(*keys: str) -> WorkerCore:
    """A worker that has begun."""
    core = worker(judged_at_once=1)
    core.handle(full(), 0.0)
    assert core.handle(search(*keys), 5.0) == []
    assert core.next_deadline() == 5.0, "heartbeats go out before the next step"
    return core


def end(core: WorkerCore) -> tuple[Candidates, int]:
    """The answer, and how many further steps it took."""
    for step in range(1, 100):
        effects = core.handle(Tick(), 5.0)
        if effects:
            assert core.next_deadline() is None
            return candidates(effects), step
        assert core.next_deadline() == 5.0
    raise AssertionError("it does not end")


@pytest.mark.parametrize("keys", [(), ("rack",)])
@pytest.mark.parametrize("together", [2, 256])
def test_steps_lead_to_the_same_answer(keys: Sequence[str], together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(*keys)
    assert expected.findings[0].candidates
    monkeypatch.setattr(gang_preempting, "NODES_TOGETHER", together)
    core = searching(*keys)
    assert core.handle(search(*keys), 5.0) == [], "an ask that is repeated goes on"
    found, steps = end(core)
    assert found == expected
    assert steps >= PODS
    assert core.handle(search(*keys), 6.0) == [Answer(found)], "it is not made again"


def test_rounds_do_not_wait_for_the_search() -> None:
    """Those with a lower priority than the gang's, too."""
    core = searching()
    asked = propose(ask_for(small_pod("p", cpu="100m")))
    [answer] = answers(core.handle(asked, 5.0)).values()
    assert answer.summary.nodes == NODES
    assert end(core)[0] == whole()


def test_nodes_that_go_meanwhile_are_left_out_and_the_answer_is_one_about_the_state_at_its_beginning() -> None:
    core = searching()
    assert core.handle(delta(2, NodeRemoved("n0")), 5.0) == []
    assert core.handle(placed(3, small_pod("p", cpu="100m"), "n1"), 5.0) == []
    found, _ = end(core)
    assert found.seq == 1
    assert {each.node for each in found.findings[0].candidates if each.members > 1} <= {
        f"n{i}" for i in range(1, NODES)
    }


def test_a_newer_search_takes_the_place_of_the_one_under_way() -> None:
    core = searching()
    assert core.handle(search("rack", ask=2), 5.0) == []
    found, _ = end(core)
    assert (found.ask, found.findings) == (2, whole("rack").findings)


def test_domains_cost_no_further_judgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not matter to each other."""
    counts: list[int] = []
    judge = Judge.judge

    def counting(*args: object) -> object:
        counts[-1] += 1
        return judge(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Judge, "judge", counting)
    for keys in ((), ("rack",)):
        counts.append(0)
        whole(*keys)
    assert counts[0] == counts[1] > 0
