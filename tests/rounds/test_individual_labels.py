"""Pods of a Job or a StatefulSet are of one class until something selects pods by the labels that tell them apart."""

import random
from collections.abc import Iterator

import pytest

from services.cycle.extenders import Extenders
from services.cycle.round.admission import Admission, PodInfo
from services.worker.label_readers import LabelReaders
from shared.cluster.nodetable import NodeTable
from shared.framework.loading import load_frameworks
from shared.model.individual_labels import INDIVIDUAL_LABELS
from shared.model.load import load_of
from shared.model.objects import (
    ClusterObject,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectKind,
    Pod,
    object_from,
)
from shared.model.wellknown import HOSTNAME, ZONE
from testing.builders import PodBuilder, node, pod, selector
from testing.inprocess.batches import queued_pod
from testing.inprocess.pipeline import Pipeline
from tests.rounds.support import BY_NAME
from tests.rounds.test_strict_mode import Placements, placements

INDEX = "batch.kubernetes.io/job-completion-index"
SHARED = "example.com/index"
"""A label of which Flotilla knows nothing."""
FRAMEWORKS = load_frameworks(None)


def worker_pod(number: int, key: str = INDEX, name: str = "train") -> PodBuilder:
    labels = {"app": "train", key: str(number)}
    return pod(f"{name}-{number}").owner("Job", "train", api_version="batch/v1").label(labels).request(cpu="500m")


def service(name: str, labels: dict[str, str]) -> ClusterObject:
    metadata = {"name": name, "namespace": "default"}
    return object_from(ObjectKind.SERVICE, {"metadata": metadata, "spec": {"selector": labels}})


def admitted(by: Admission, built: PodBuilder) -> PodInfo:
    info, failure = by.admit(queued_pod(built.build()), 0.0)
    assert failure is None
    return info


def test_pods_of_a_job_are_of_one_class_and_count_with_all_of_their_labels() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    first, second = admitted(by, worker_pod(0)), admitted(by, worker_pod(1))
    assert first.class_id == second.class_id
    assert second.load == load_of(worker_pod(1).build())
    assert INDEX not in second.of_class.metadata.labels
    assert second.of_class.metadata.labels["app"] == "train"


def test_once_a_label_is_read_pods_that_differ_in_it_are_of_several_classes() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    pods = [admitted(by, worker_pod(number)) for number in range(2)]
    assert by.learn([INDEX, "app"]) == {INDEX}
    assert by.learn([INDEX]) == frozenset()
    by.judge_by_labels(pods)
    again = [admitted(by, worker_pod(number)) for number in range(2)]
    assert [info.class_id for info in pods] == [info.class_id for info in again]
    assert pods[0].class_id != pods[1].class_id
    assert pods[0].of_class.metadata.labels[INDEX] == "0"


def test_an_answer_of_the_last_release_may_rest_on_any_label() -> None:
    assert Admission(FRAMEWORKS, Extenders()).learn(None) == INDIVIDUAL_LABELS


@pytest.mark.parametrize(
    "reader",
    [
        pod("reader").require_no_pods(HOSTNAME, selector({INDEX: "0"})),
        pod("reader").prefer_pods(
            1, ZONE, LabelSelector(match_expressions=[LabelSelectorRequirement(key=INDEX, operator="Exists")])
        ),
        pod("reader").spread_hard(ZONE, selector({INDEX: "0"})),
    ],
)
def test_a_pod_that_selects_by_such_a_label_has_it_read_from_then_on(reader: PodBuilder) -> None:
    by = Admission(FRAMEWORKS, Extenders())
    admitted(by, reader)
    assert admitted(by, worker_pod(0)).class_id != admitted(by, worker_pod(1)).class_id


def test_pods_of_a_replica_set_keep_their_labels_as_its_selector_may_read_them() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    of_set = [pod(f"p{number}").owner("ReplicaSet", "web").label({INDEX: str(number)}) for number in range(2)]
    assert admitted(by, of_set[0]).class_id != admitted(by, of_set[1]).class_id


def test_workers_say_by_which_labels_placed_pods_and_services_select() -> None:
    table, readers = NodeTable(), LabelReaders()
    table.add_node(node("n").build())
    assert readers.read(table) == []
    table.add_pod("r", "n", load_of(pod("r").require_no_pods(HOSTNAME, selector({INDEX: "0"})).build()))
    assert readers.read(table) == [INDEX]
    table.objects.upsert(service("one", {"statefulset.kubernetes.io/pod-name": "web-0"}))
    assert readers.read(table) == [INDEX, "statefulset.kubernetes.io/pod-name"]
    table.remove_pod("r")
    assert readers.read(table) == ["statefulset.kubernetes.io/pod-name"]


def world(seed: int, key: str) -> tuple[list[Pod], list[ClusterObject], list[Pod]]:
    """Placed pods, services, and pods that come, of which some select others by this label."""
    dice = random.Random(seed)

    def reading(name: str) -> PodBuilder:
        by = selector({key: str(dice.randrange(4))}) if dice.random() < 0.7 else selector(app="train")
        made = pod(name).label(app="other")
        kinds = [
            lambda: made.require_no_pods(dice.choice([HOSTNAME, ZONE]), by),
            lambda: made.prefer_no_pods(100, ZONE, by),
            lambda: made.prefer_pods(100, HOSTNAME, by),
            lambda: made.spread_soft(ZONE, by),
        ]
        return dice.choice(kinds)()

    def coming() -> Iterator[PodBuilder]:
        for number in range(10):
            yield worker_pod(number % 4, key, f"w{number}")
            if dice.random() < 0.15:
                yield reading(f"late-{number}")

    placed = [reading(f"there-{i}").on(f"n{dice.randrange(6)}").build() for i in range(dice.randrange(3))]
    services = [service("headless", {key: "1"})] if dice.random() < 0.3 else []
    return placed, services, [each.build() for each in coming()]


def decided(seed: int, key: str, shards: int) -> Placements:
    placed, services, pods = world(seed, key)
    run = Pipeline(shards=shards, round_size=1, ties=BY_NAME)
    run.add_nodes(
        node(f"n{i}").capacity(cpu=4, memory="8Gi").label({HOSTNAME: f"n{i}", ZONE: f"z{i % 3}"}).build()
        for i in range(6)
    )
    run.add_pods(placed)
    run.add_objects(services)
    run.submit(pods)
    run.settle()
    run.cycle.validate()
    return placements(run, pods)


@pytest.mark.parametrize("case", range(12))
def test_decisions_are_those_that_all_labels_lead_to(case: int) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    shards = case % 3 + 1
    assert decided(seed, INDEX, shards) == decided(seed, SHARED, shards)
