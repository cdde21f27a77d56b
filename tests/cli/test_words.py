"""What `flotilla queue` says in words, and how it groups, cuts and compares."""

import pytest
from msgspec.structs import replace

from services.queue.introspection import describe, labels
from services.queue.scheduling.queued_pod_info import PodState
from shared.explain.words import amount
from shared.framework.clusterevents import LABELS
from shared.framework.loading import load_frameworks
from shared.messages.inspection import DescribedPod, NodesMeasured, QueueListed
from testing.builders import PodBuilder, pod
from tests.cli.test_queue import NOW, an_info
from tools.cli.output import table
from tools.cli.queue_groups import Group, add, sentence
from tools.cli.queue_listing import rows
from tools.cli.queue_watch import changes
from tools.cli.words import EVENTS, Reason, events_in_words, first_events, reasons, waits_for, why_pending

FITS_NOWHERE = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {example.com/team: a}, 2 Insufficient cpu. "
    "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)


def rejected(made: PodBuilder, message: str) -> DescribedPod:
    info = an_info(made, PodState.UNSCHEDULABLE)
    info.attempts, info.unschedulable_plugins = 2, ("NodeResourcesFit",)
    info.last_failure, info.failed_at = message, 990.0
    return describe(info, "", with_body=True)


# Events


def test_every_registered_event_has_words() -> None:
    registered = {
        label
        for framework in load_frameworks(None).values()
        for registrations in framework.registrations.values()
        for label in labels(registrations)
    }
    assert registered
    assert registered <= EVENTS.keys()


def test_every_label_of_a_cluster_event_has_words() -> None:
    told = {label for label in LABELS if not label.startswith("Pod")} - {"UnschedulableTimeout", "ForceActivate"}
    assert told <= EVENTS.keys()


def test_events_are_named_once_the_likeliest_first() -> None:
    shown = events_in_words(
        ["UnschedulablePodUpdatePodScaleDown", "NodeUpdateNodeTaint", "AssignedPodDelete", "NodeAdd"]
    )
    assert shown == ("a node is added", "a pod leaves", "a node's taints change", "it asks for less")
    assert events_in_words(["NodeAdd", "NodeAdd", "OfALaterRelease"]) == ("a node is added", "OfALaterRelease")


def test_only_the_first_events_are_named() -> None:
    assert first_events(["a", "b", "c"]) == "a, b, c"
    assert first_events(["a", "b", "c", "d"]) == "a, b, c and 1 more event"
    assert first_events(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more events"


def test_a_plugin_without_events_waits_for_any() -> None:
    assert waits_for(replace(rejected(pod("a"), ""), requeue_events=("*All",)), NOW) == ("any event",)


# Reasons


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            FITS_NOWHERE,
            [Reason(1, "node(s) had untolerated taint {example.com/team: a}"), Reason(2, "Insufficient cpu")],
        ),
        ("0/1 nodes are available: 1 Too many pods.", [Reason(1, "Too many pods")]),
        (
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: not helpful.",
            [Reason(0, "pod has unbound immediate PersistentVolumeClaims")],
        ),
        ("running PreFilter plugin: boom, 3 times", [Reason(0, "running PreFilter plugin: boom, 3 times")]),
        ("", []),
    ],
)
def test_reasons_are_read_from_the_message(message: str, found: list[Reason]) -> None:
    assert reasons(message) == found


def test_a_pod_shows_its_reasons_with_counts_and_its_nomination() -> None:
    shown = replace(rejected(pod("a"), FITS_NOWHERE), nominated="node-1")
    assert why_pending(shown) == (
        "1 node(s) had untolerated taint {example.com/team: a}, 2 Insufficient cpu; nominated to node-1"
    )
    assert why_pending(replace(shown, state="binding", nominated="")) == "", "its last attempt did not fail"


@pytest.mark.parametrize(
    ("resource", "value", "shown"),
    [
        ("cpu", 64000, "64"),
        ("cpu", 250, "0.25"),
        ("memory", 3 << 30, "3Gi"),
        ("memory", 100, "100"),
        ("example.com/gpu", 2, "2"),
    ],
)
def test_amounts_are_as_in_a_manifest(resource: str, value: int, shown: str) -> None:
    assert amount(resource, value) == shown


# Groups


def groups_of(by: str, *pods: DescribedPod) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for each in pods:
        add(found, by, each)
    return found


def test_pods_of_one_reason_are_counted_with_what_they_ask_for() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu."
    pods = [rejected(pod(f"p{i}").request(cpu=8), message) for i in range(8)]
    (group,) = groups_of("reason", *pods).values()
    measured = NodesMeasured(3, {"cpu": 4000}, {"cpu": 500})
    assert sentence(group, "reason", measured) == (
        "8 pods: Insufficient cpu; they ask for 64 cpu in all, the largest node has 4, no node has more than 0.5 free"
    )
    (alone,) = groups_of("reason", pods[0]).values()
    assert sentence(alone, "reason", measured).startswith("1 pod: Insufficient cpu; it asks for 8 cpu, ")


def test_unequal_pods_name_the_largest() -> None:
    message = "0/3 nodes are available: 3 Insufficient memory."
    pods = [rejected(pod(f"p{i}").request(memory=f"{i + 1}Gi"), message) for i in range(2)]
    (group,) = groups_of("reason", *pods).values()
    assert "they ask for 3Gi memory in all, the largest of them for 2Gi, " in sentence(group, "reason", NodesMeasured())


def test_owners_and_namespaces_list_their_reasons() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu."
    owned = [rejected(pod(f"p{i}", "shop").owner("Job", "train").request(cpu=1), message) for i in range(2)]
    waiting = describe(an_info(pod("w", "shop"), PodState.ACTIVE), "", with_body=True)
    by_owner = groups_of("owner", *owned, waiting)
    assert by_owner.keys() == {"Job shop/train", "no owner"}
    assert sentence(by_owner["Job shop/train"], "owner", NodesMeasured()).startswith(
        "2 pods: Job shop/train; Insufficient cpu (2); they ask for 2 cpu in all"
    )
    assert sentence(by_owner["no owner"], "owner", NodesMeasured()) == "1 pod: no owner"
    assert groups_of("namespace", *owned, waiting)["shop"].pods == 3
    assert groups_of("reason", waiting).keys() == {"active"}


# The terminal


def test_a_table_is_cut_only_where_there_is_a_width() -> None:
    rows = [("POD", "WHY"), ("shop/" + "x" * 40, "y" * 80)]
    assert [len(line) for line in table(rows)][1] == 45 + 2 + 80
    cut = list(table(rows, 80))
    assert all(len(line) <= 80 for line in cut)
    assert cut[1].endswith("…")
    assert cut[1].startswith("shop/xxxx")
    assert list(table([("a", "b")], 80)) == ["a  b"]


def test_a_narrow_terminal_shows_no_events() -> None:
    page = QueueListed("l", NOW, {"unschedulable": 1}, 1, [rejected(pod("a"), FITS_NOWHERE)])
    columns = [{len(row) for row in found} for found in (rows(page), rows(page, width=100), rows(page, width=80))]
    assert columns == [{6}, {6}, {5}]
    assert all(len(line) < 80 for line in table(rows(page, width=79), 79))


def test_changes_are_lines() -> None:
    first = rejected(pod("a"), "0/1 nodes are available: 1 Too many pods.")
    other = replace(first, uid="other", name="b", state="binding", node="node-1", failed_at=None)
    told = list(changes({"a": first, "other": other}, {"a": replace(first, state="backoff"), "new": first}))
    assert told == [
        "default/a unschedulable -> backoff: 1 Too many pods",
        "default/a came: unschedulable: 1 Too many pods",
        "default/b left the queue, it was being bound to node-1",
    ]
    assert list(changes({"a": first}, {"a": first})) == []
