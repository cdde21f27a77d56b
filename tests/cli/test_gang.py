"""flotilla gang: how the queue describes pod groups, and how they are printed."""

import pytest
from msgspec.structs import replace

from services.queue.group_listing import GroupListing, missing_names
from services.queue.scheduling.queued_pod_info import PodState
from shared.bus import Envelope
from shared.bus.subjects import QUEUE_LIST
from shared.messages.codec import encode
from shared.messages.inspection import MAX_GROUPS, MAX_MEMBERS, DescribedGroup, ListGroups
from shared.messages.limits import MAX_BYTES
from shared.model.objects import GroupApi, GroupRef, object_from_msgpack, pod_from
from tests.bus.support import a_bus
from tests.cli.operating import Operator
from tests.queue.pod_group_support import OURS, THEIRS, GroupQueue, a_group, a_pod_info
from tests.queue.support import Queue
from tests.queue.test_group_trees import add, composite, group, see
from tests.servers import nats_server
from tools.cli.gang import details, row, rows


def described(line: GroupQueue, name: str = "") -> DescribedGroup:
    (found,) = GroupListing(line.groups, line.nominator).answer(ListGroups(name=name), line.now).groups
    return found


def shown(line: GroupQueue) -> tuple[str, ...]:
    return row(described(line), line.now)


def test_an_incomplete_gang_names_the_missing_pod() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("worker-0", "worker-1")
    line.now = 40.0
    assert shown(line) == (
        "default/g", "incomplete", "2 of 3", "0", "2 of 3 here; waiting 40s; worker-2 not created"
    )  # fmt: skip
    assert list(details(described(line, "g"), line.now)) == [
        "Group:   default/g (scheduling.k8s.io)",
        "State:   incomplete: 2 of 3 here; waiting 40s; worker-2 not created",
        "Why:     2 of its pods exist, and at least 3 are needed",
        "Pods:    2 held",
        "  worker-0                      held        2 of its pods exist, and at least 3 are needed",
        "  worker-1                      held        2 of its pods exist, and at least 3 are needed",
    ]


def test_pods_that_do_not_count_are_not_called_missing() -> None:
    line = GroupQueue()
    line.see(5)
    for name in ("w-0", "w-1"):
        line.groups.assigned(name, OURS, name, "node")
    line.groups.finished("w-0")
    line.groups.remove("w-0")
    foreign = pod_from({
        "metadata": {"name": "w-2", "uid": "w-2"},
        "spec": {"schedulerName": "flotilla", "schedulingGroup": {"podGroupName": OURS.name}},
    })  # fmt: skip
    line.groups.others.add_foreign(foreign)
    waits = "1 pod names the scheduler flotilla, which no profile here has; w-0 has finished; w-3, w-4 not created"
    assert shown(line)[3:] == ("1", f"1 of 5 here; {waits}")
    line.groups.others.forget("w-2")
    line.add("w-0", "w-2")  # the one that had finished is replaced
    assert shown(line)[4] == "3 of 5 here; waiting 0s; w-3, w-4 not created"


def test_a_group_that_cannot_be_read_is_not_absent() -> None:
    line = GroupQueue()
    line.groups.set_unreadable(OURS, "9 topology levels")
    line.add("a", "b")
    assert shown(line)[4] == "it cannot be read: 9 topology levels; waiting 0s"
    why = "the pod group cannot be read: 9 topology levels"
    assert [member.why for member in described(line, "g").members] == [why, why]
    line.groups.set_unreadable(OURS, "")
    line.see(2)
    assert shown(line)[1:] == ("active", "2 of 2", "0", "2 of 2 here")


def test_pods_without_a_group() -> None:
    line = GroupQueue()
    line.add("a")
    assert shown(line)[1:] == ("absent", "1", "0", "1 pod names it, and it does not exist; waiting 0s")


def test_a_gated_member_holds_the_others() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    line.add("b", shut=True)
    line.take()
    line.now = 5.0
    assert shown(line)[1:] == ("held", "2 of 2", "0", "2 of 2 here; waiting 5s; 1 gated")


def test_a_gang_is_scheduled_and_placed() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b")
    assert shown(line)[1] == "active"
    line.take()
    assert shown(line)[1:3] == ("scheduling", "2 of 2")
    line.decide("a", "b")
    line.bound("a")
    assert shown(line)[1:] == ("placed", "2 of 2", "2", "2 of 2 here")


def test_a_rejected_gang_says_why() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b")
    line.take()
    for info in line.pods.values():
        info.attempts, info.failed_at = 3, 1.0
        info.last_failure = "0/5 nodes are available: 5 Insufficient cpu."
    line.reject("a", "b")
    assert (shown(line)[1], shown(line)[4]) == ("unschedulable", "2 of 2 here; tried 3x: 5 Insufficient cpu")
    gang = line.pods["a"].gang
    assert gang is not None
    gang.backoff_until = 7
    line.reject("a", state=PodState.BACKOFF)
    assert shown(line)[1] == "backoff"
    assert shown(line)[4] == "2 of 2 here; tried 3x: 5 Insufficient cpu; backs off for 8s"


def test_a_gang_that_waits_for_victims_says_so() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    line.take()
    for name in "ab":
        line.nominator.nominate(name, f"n-{name}")
    line.reject("a", "b", "c")
    assert shown(line)[4] == "3 here, 2 needed; 2 nominated, until their victims are gone"
    assert [member.why for member in described(line, "g").members] == ["nominated to n-a", "nominated to n-b", ""]
    line.take()
    line.decide("a", "b", "c")
    assert described(line).nominated == 0


@pytest.mark.parametrize("of_group", [False, True])
def test_a_gang_that_may_not_preempt_says_so_once_it_was_tried(of_group: bool) -> None:
    line = GroupQueue()
    group = a_group(2)
    if of_group:
        group = replace(group, spec=replace(group.spec, preemption_policy="Never"))
    line.groups.set_group(group)
    line.add("a", "b")
    if not of_group:
        info = line.pods["b"]
        info.pod = replace(info.pod, spec=replace(info.pod.spec, preemption_policy="Never"))
    assert shown(line)[4] == "2 of 2 here"
    line.take()
    for info in line.pods.values():
        info.attempts, info.failed_at, info.last_failure = 1, 1.0, "0/5 nodes are available: 5 Insufficient cpu."
    line.reject("a", "b")
    assert shown(line)[4] == "2 of 2 here; tried 1x: 5 Insufficient cpu; may not preempt"


def test_placed_members_are_named_too() -> None:
    line = GroupQueue()
    line.groups.set_group(a_group(3))
    line.groups.assigned("uid-0", OURS, "worker-0")
    line.add("worker-2")
    group = described(line, "g")
    assert group.missing == ("worker-1",)
    assert [(member.name, member.state) for member in group.members] == [("worker-2", "held"), ("worker-0", "placed")]
    line.groups.remove("uid-0")
    assert described(line).missing == ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("names", "minimum", "missing"),
    [
        (["a-0", "a-2"], 4, ("a-1", "a-3")),
        (["a-0", "b-1"], 3, ()),
        (["a-0", "driver"], 3, ()),
        (["a-x7k2f"], 2, ()),
        (["a-48291"], 2, ()),
        (["run-2-0-scksv", "run-2-2-22456"], 4, ("run-2-1", "run-2-3")),
        (["a-0", "a-1"], 2, ()),
        ([], 2, ()),
        (["a-1"], 12, tuple(f"a-{i}" for i in (0, *range(2, 9)))),
    ],
)
def test_missing_names_are_told_by_numbers(names: list[str], minimum: int, missing: tuple[str, ...]) -> None:
    assert missing_names(names, minimum) == missing


def test_pages_are_in_order_and_bounded() -> None:
    line = GroupQueue()
    for i in range(2 * MAX_GROUPS):
        line.groups.set_group(a_group(2, ref=GroupRef(GroupApi.COSCHEDULING, f"default/{i:0>253}")))
    listing = GroupListing(line.groups, line.nominator)
    first = listing.answer(ListGroups(limit=10**9), 0.0)
    assert (len(first.groups), first.total) == (MAX_GROUPS, 2 * MAX_GROUPS)
    assert len(encode(first)) < MAX_BYTES / 2
    second = listing.answer(ListGroups(first.listing, first.next), 0.0)
    assert [group.name for group in (*first.groups, *second.groups)] == [f"{i:0>253}" for i in range(2 * MAX_GROUPS)]
    assert listing.answer(ListGroups("of another queue"), 0.0).listing == ""


def test_a_large_gang_is_cut() -> None:
    line = GroupQueue()
    line.see(MAX_MEMBERS + 20)
    for i in range(MAX_MEMBERS + 10):
        info = a_pod_info(f"p-{i}")
        info.state, info.gating_plugin = PodState.GATED, "GangScheduling"
        line.groups.moved(info, 0.0)
    group = described(line, "g")
    assert len(group.members) == MAX_MEMBERS
    assert list(details(group, 0.0))[-1] == "  and 10 more"


@pytest.mark.asyncio
async def test_the_command_lists_groups(operator: Operator) -> None:
    line = GroupQueue()
    line.see(2, ref=THEIRS)
    line.add("w-0", ref=THEIRS)
    listing = GroupListing(line.groups, line.nominator)

    def answer(asked: ListGroups, envelope: Envelope) -> None:
        envelope.respond(listing.answer(asked, 3.0))

    async with nats_server() as server, a_bus(server) as bus:
        await bus.subscribe(QUEUE_LIST, ListGroups, answer)
        operator.reaches(server)
        said = await operator.types("gang")
        assert said.lines[0].split() == ["GROUP", "STATE", "HERE", "PLACED", "WHAT"]
        assert said.lines[1].endswith("1 of 2 here; waiting 3s; w-1 not created")
        assert (await operator.types("gang", "g")).lines[0] == "Group:   default/g (scheduling.x-k8s.io)"
        assert '"minimum": 2' in (await operator.types("gang", "-o", "json")).out
        assert (await operator.types("gang", "-n", "elsewhere")).lines == ["no pod groups"]
        absent = await operator.types("gang", "ml/none")
        assert (absent.code, absent.out) == (1, "")
        assert "no pod group ml/none" in absent.err


def test_a_tree_is_shown_with_its_composite_groups() -> None:
    queue = Queue()
    see(queue, composite("root", 2), composite("mid", 1, "root"), group("a", 2, "mid"), group("b", 1, "root"))
    see(queue, group("other", 1))
    add(queue, "a-0", "b-0", "other-0")
    queue.take()
    listing = GroupListing(queue.core.groups, queue.core.nominator)
    found = listing.answer(ListGroups(), queue.now)
    assert [each[:4] for each in rows(found.groups, found.now)] == [
        ("default/root", "incomplete", "1 of 2", "0"),
        ("  b", "held", "1 of 1", "0"),
        ("  mid", "incomplete", "0 of 1", "0"),
        ("    a", "incomplete", "1 of 2", "0"),
        ("default/other", "scheduling", "1 of 1", "0"),
    ]
    why = "1 of the 2 groups of composite pod group root have enough pods, and at least 2 are needed"
    (b,) = [group for group in found.groups if group.name == "b"]
    assert row(b, found.now)[4] == f"1 of 1 here; waiting 0s; {why}"
    below = listing.answer(ListGroups(name="mid"), queue.now).groups
    assert [each.name for each in below] == ["a"]
    assert list(details(below[0], queue.now))[2:4] == [
        "In:      mid in root",
        "Why:     1 of its pods exist, and at least 2 are needed",
    ]
    add(queue, "a-1")
    found = listing.answer(ListGroups(name="root", bodies=True), queue.now)
    assert next(rows(found.groups, found.now))[:3] == ("default/root", "active", "2 of 2")
    (root, mid) = found.groups[0].above
    assert object_from_msgpack(mid.body) == composite("mid", 1, "root")
    assert object_from_msgpack(root.body) == composite("root", 2)
