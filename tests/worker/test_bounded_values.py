"""What passes through a worker leaves nothing behind: values of taints and labels, and names of resources."""

from flotilla.plugin import LabelValue, match_requirement
from services.cycle.events import Decided, Unschedulable
from services.worker.core import WorkerCore
from shared.cluster.nodetable import FEWEST_VALUES, NodeTable
from shared.cluster.view import TableView
from shared.messages.rounds import ClassAnswer
from shared.messages.state import NodeUpserted
from shared.model.objects import Node, NodeSelectorRequirement
from testing.builders import PodBuilder, expr, node, pod
from tests.rounds.support import answers, ask_for, delta, propose, small_node, state, worker
from tests.rounds.world import Audited

GPU, NIC = "example.com/gpu", "example.com/nic"


def loaded(*nodes: Node) -> WorkerCore:
    core = worker()
    core.handle(state(1, *nodes), 0.0)
    return core


def ask(core: WorkerCore, *kinds: PodBuilder, count: int = 1, number: int = 1) -> dict[str, ClassAnswer]:
    asks = [ask_for(kind.build(), count=count) for kind in kinds]
    return answers(core.handle(propose(*asks, round_=number), 0.0))


def test_values_that_no_node_has_any_more_are_forgotten() -> None:
    """Thousands of values of a taint and of a label pass through one node; two others keep theirs."""

    def stamped(i: int) -> Node:
        return node("n").capacity(cpu=4).taint("t", str(i)).label(stamp=str(i)).build()

    kept = node("kept").capacity(cpu=4).taint("t", "kept").label(stamp="kept").build()
    soft = node("soft").capacity(cpu=4).taint("t", "s", effect="PreferNoSchedule").label(stamp="-1").build()
    base = pod("plain").request(cpu=1)
    kinds = [
        base,
        pod("tolerates").request(cpu=1).tolerate("t", "2999"),
        pod("tolerates-kept").request(cpu=1).tolerate("t", "kept"),
        pod("wants").request(cpu=1).tolerate().node_selector(stamp="2999"),
        pod("wants-kept").request(cpu=1).tolerate().node_selector(stamp="kept"),
        pod("high").request(cpu=1).tolerate().require_node(expr("stamp", "Gt", "1500")),
        pod("likes").request(cpu=1).tolerate().prefer_node(50, expr("stamp", "NotIn", "kept", "7")),
    ]
    core = loaded(kept, stamped(0), soft)
    for i in range(1, 3000):
        core.handle(delta(i + 1, NodeUpserted(stamped(i))), 0.0)
        if i % 333 == 0 or i in (1022, 1023, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032, 2999):
            assert ask(core, *kinds, count=2, number=i) == ask(loaded(kept, stamped(i), soft), *kinds, count=2), i
        else:
            ask(core, kinds[3], number=i)
    most = FEWEST_VALUES + 2 * 3
    assert len(core.table.taint_sets) <= most
    assert len(core.table.label_values("stamp")) <= most
    assert core.refused == type(core.refused)()


def test_resources_that_only_pending_pods_name_take_no_room() -> None:
    core = loaded(small_node("a"), small_node("b"))
    rows = core.table.allocatable.shape
    got = ask(core, *(pod(f"p{i}").request({f"example.com/made-up-{i}": 1}) for i in range(30)))
    reasons = [[part.status.reasons for part in answer.rejections] for answer in got.values()]
    assert reasons == [[(f"Insufficient example.com/made-up-{i}",)] for i in range(30)]
    assert core.table.allocatable.shape == rows
    assert len(core.table.resources) == 4


def test_a_class_from_before_its_resources_were_known_is_counted_right() -> None:
    """First one of its two resources comes, then the other one."""
    core = loaded(small_node("a"))
    kind = pod("p").request({GPU: 1, NIC: 2}, cpu="100m")
    assert ask(core, kind, count=3)["p"].ladder.nodes == []
    core.handle(delta(2, NodeUpserted(node("g").capacity({GPU: 2}, cpu=4).build())), 0.0)
    assert ask(core, kind, count=3, number=2)["p"].ladder.nodes == []
    core.handle(delta(3, NodeUpserted(node("h").capacity({GPU: 9, NIC: 5}, cpu=4).build())), 0.0)
    got = ask(core, kind, count=3, number=3)["p"].ladder
    assert (got.nodes, got.complete) == (["h", "h"], True)


def test_two_pods_of_one_round_do_not_share_a_gpu_that_came_after_they_were_known() -> None:
    run = Audited(shards=1, round_size=8)
    run.add_nodes([small_node("a")])
    pods = [pod(f"p{i}").request({GPU: 1}, cpu="100m").build() for i in range(4)]
    run.submit(pods[:2])
    run.settle()
    assert all(isinstance(run.outcomes[each.uid], Unschedulable) for each in pods[:2])
    run.add_nodes([node("g").capacity({GPU: 1}, cpu=4).build()])
    run.submit(pods[2:])
    run.settle()
    assert run.outcomes[pods[2].uid] == Decided(pods[2].uid, "g")
    assert isinstance(run.outcomes[pods[3].uid], Unschedulable)
    assert run.conflicts == []


def test_labels_that_only_pending_pods_name_leave_nothing() -> None:
    table = NodeTable()
    table.add_node(small_node("a"))
    for i in range(50):
        requirement = NodeSelectorRequirement(key=f"made-up-{i}", operator="In", values=["x"])
        assert not match_requirement(TableView(table), requirement).any()
        assert table.known_texts(LabelValue(requirement.key)) is table.known_texts(LabelValue("another"))
