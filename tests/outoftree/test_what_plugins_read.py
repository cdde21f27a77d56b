"""What an out-of-tree plugin reads of a pod and of other objects, it is asked about: nothing is taken to be alike."""

from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from flotilla.events import Action, Registration, Resource
from flotilla.plugin import BindingState, ClassState, NodeInfo, PermitPlugin, PerNodeFilter, PodParts, PreFilterPlugin
from flotilla.results import SUCCESS, Permission, PreFilterResult, Status, unschedulable
from services.cycle.events import Decided, Failed, Unschedulable
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.cluster.nodetable import NodeTable
from shared.config.points import ExtensionPoint
from shared.framework.evaluator import ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.signatures import PluginFailed
from shared.messages.evaluation import Ties
from shared.model.objects import Namespace, ObjectMeta, OwnerReference, Pod, pod_from
from shared.plugins.registry import in_tree
from testing.builders import pod
from testing.inprocess.batches import class_of
from testing.inprocess.pipeline import Pipeline
from tests.rounds.support import answers, ask_for, framework_with, propose, small_node, small_pod, state, worker

WISH = "example.com/node"
FILTER, PRE_FILTER, PERMIT = ExtensionPoint.FILTER, ExtensionPoint.PRE_FILTER, ExtensionPoint.PERMIT


def annotated(name: str, **annotations: str) -> Pod:
    built = small_pod(name)
    return replace(built, metadata=replace(built.metadata, annotations={WISH: "a", **annotations}))


def wishing(name: str, node: str) -> Pod:
    built = small_pod(name)
    return replace(built, metadata=replace(built.metadata, annotations={WISH: node}))


def owned_by(name: str, node: str) -> Pod:
    """By something that is not its controller."""
    built = small_pod(name)
    owner = OwnerReference(api_version="example.com/v1", kind="Wish", name=node, uid=f"wish-{node}")
    return replace(built, metadata=replace(built.metadata, owner_references=[owner]))


class ByAnnotation(PerNodeFilter):
    """Knows nothing of signatures."""

    name = "ByAnnotation"

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        return SUCCESS if node.node.name == self.wish(state.pod) else unschedulable("another node is wished for")

    def wish(self, pod: Pod) -> str:
        return pod.metadata.annotations[WISH]


class ByName(ByAnnotation):
    name = "ByName"

    def wish(self, pod: Pod) -> str:
        return pod.name.rpartition("-")[2]


class ByOwner(ByAnnotation):
    name = "ByOwner"

    def wish(self, pod: Pod) -> str:
        return pod.metadata.owner_references[0].name


class SignedAnnotation(ByAnnotation):
    """Says what it reads, which is more than what pods of one workload have in common."""

    name = "SignedAnnotation"

    def signature(self, pod: Pod) -> Hashable:
        return pod.metadata.annotations.get(WISH)


NODES = [small_node(name, cpu=64) for name in "abc"]


def run(plugin: type[PerNodeFilter], pods: Sequence[Pod], shards: int = 1) -> Pipeline:
    pipeline = Pipeline(framework_with(plugin, FILTER), shards=shards)
    pipeline.add_nodes(NODES)
    pipeline.submit(pods)
    pipeline.settle()
    return pipeline


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    ("plugin", "pods"),
    [
        (ByAnnotation, [wishing(f"p{i}", node) for i, node in enumerate("abcab")]),
        (SignedAnnotation, [wishing(f"p{i}", node) for i, node in enumerate("abcab")]),
        (ByName, [small_pod(f"p{i}-{node}") for i, node in enumerate("abcab")]),
        (ByOwner, [owned_by(f"p{i}", node) for i, node in enumerate("abcab")]),
    ],
    ids=["undeclared", "signed", "name", "owner"],
)
def test_pods_that_differ_in_nothing_else_are_judged_apart(
    plugin: type[PerNodeFilter], pods: list[Pod], shards: int
) -> None:
    pipeline = run(plugin, pods, shards)
    assert [pipeline.outcomes[each.uid] for each in pods] == [
        Decided(each.uid, node) for each, node in zip(pods, "abcab", strict=True)
    ]


def test_a_pod_that_changes_is_judged_again() -> None:
    first = wishing("p", "nowhere")
    pipeline = run(ByAnnotation, [first])
    assert isinstance(pipeline.outcomes[first.uid], Unschedulable)
    changed = wishing("p", "b")
    pipeline.submit([changed])
    pipeline.settle()
    assert pipeline.outcomes[changed.uid] == Decided(changed.uid, "b")


# Which pods share a class


def classes(framework_plugin: type[Any], point: ExtensionPoint, *pods: Pod) -> int:
    """How many classes these pods make."""
    (framework,) = framework_with(framework_plugin, point).values()
    return len({class_of(framework, each) for each in pods})


ALIKE = [wishing("p", "a"), wishing("q", "a"), annotated("r", other="x"), wishing("s", "b")]


class Unsigned(PermitPlugin):
    name = "Unsigned"

    def permit(self, state: BindingState, node: str) -> Permission:
        return Permission()


def test_a_plugin_without_a_signature_has_every_pod_be_a_class_of_its_own() -> None:
    assert classes(ByAnnotation, FILTER, *ALIKE) == 4


def test_a_signature_says_which_pods_are_alike() -> None:
    assert classes(SignedAnnotation, FILTER, *ALIKE) == 2


def test_a_plugin_that_runs_on_one_pod_at_a_time_splits_no_class() -> None:
    assert classes(Unsigned, PERMIT, *ALIKE) == 1


# Who declares that he reads the template only sees nothing else


class Declared(PreFilterPlugin):
    """Breaks its word."""

    name = "Declared"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return pod.metadata.annotations.get(WISH)

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        meta = state.pod.metadata
        seen = (meta.name, meta.uid, meta.annotations, [owner.name for owner in meta.owner_references])
        return PreFilterResult(unschedulable(repr(seen)))


def test_what_is_not_declared_is_not_there() -> None:
    built = pod("p").owner("ReplicaSet", "web").label(app="web").build()
    stray = OwnerReference(api_version="example.com/v1", kind="Wish", name="stray", uid="stray")
    owners = [*built.metadata.owner_references, stray]
    first = replace(built, metadata=replace(built.metadata, annotations={WISH: "a"}, owner_references=owners))
    second = replace(first, metadata=replace(first.metadata, name="q", uid="q", annotations={WISH: "b"}))
    assert classes(Declared, PRE_FILTER, first, second) == 1
    pipeline = Pipeline(framework_with(Declared, PRE_FILTER))
    pipeline.add_nodes(NODES)
    pipeline.submit([first, second])
    pipeline.settle()
    for each in (first, second):
        outcome = pipeline.outcomes[each.uid]
        assert isinstance(outcome, Unschedulable)
        assert "('', '', {}, ['web'])" in outcome.unfit.message


def test_a_name_by_which_claims_are_called_is_there() -> None:
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    raw = {"metadata": {"name": "p", "uid": "u"}, "spec": {"volumes": [volume]}}
    (framework,) = framework_with(Declared, PRE_FILTER).values()
    assert framework.shown(pod_from(raw)).metadata.name == "p"


# Objects


class ByNamespace(PerNodeFilter):
    """Reads an object that it does not name."""

    name = "ByNamespace"

    def signature(self, pod: Pod) -> Hashable:
        return pod.namespace

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        namespace = state.objects.namespaces.get(state.pod.namespace)
        wish = "" if namespace is None else namespace.labels.get("node", "")
        return SUCCESS if node.node.name == wish else unschedulable("another node is wished for")


def test_objects_that_were_not_named_are_looked_at_again_when_one_changes() -> None:
    pipeline = Pipeline(framework_with(ByNamespace, FILTER))
    pipeline.add_nodes(NODES)
    for number, node in enumerate("abc"):
        pipeline.add_objects([Namespace(metadata=ObjectMeta(name="default", labels={"node": node}))])
        wanted = small_pod(f"p{number}")
        pipeline.submit([wanted])
        pipeline.settle()
        assert pipeline.outcomes[wanted.uid] == Decided(wanted.uid, node)


# In-tree


def test_every_plugin_in_tree_says_what_it_reads() -> None:
    everywhere = {point: {"enabled": [{"name": name} for name in in_tree()]} for point in ("multiPoint",)}
    profile = {"plugins": everywhere}
    raw = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    (framework,) = load_frameworks(raw).values()
    assert {plugin.name for plugin in framework.plugins} == set(in_tree())
    built = small_pod("p")
    for plugin in framework.plugins:
        assert plugin.reads_of_pod is PodParts.TEMPLATE, plugin.name
    assert {plugin.name for plugin in framework.judging} <= set(in_tree())
    for plugin in framework.judging:
        assert type(plugin).signature is not PreFilterPlugin.signature, plugin.name
        assert type(plugin).reads_objects is not PreFilterPlugin.reads_objects, plugin.name
    assert framework.shown(built).metadata.name == ""


# Signatures that are none


class Signs(PerNodeFilter):
    """With what the label says."""

    name = "Signs"

    def signature(self, pod: Pod) -> Hashable:
        match pod.metadata.labels.get("signs"):
            case "list":
                return [pod.name]  # type: ignore[return-value]
            case "deep":
                return ("a", ("b", {"c": 1}))
            case "object":
                return object()
            case "raises":
                raise ZeroDivisionError("it is one of those days")
            case _:
                return None

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        return SUCCESS


@pytest.mark.parametrize("signs", ["list", "deep", "object", "raises"])
def test_a_bad_signature_fails_its_pods_by_name_and_no_other(signs: str) -> None:
    bad, good = [small_pod(f"bad{i}", signs=signs) for i in range(3)], small_pod("good")
    pipeline = run(Signs, [bad[0], good, *bad[1:]])
    assert isinstance(pipeline.outcomes[good.uid], Decided)
    for each in bad:
        outcome = pipeline.outcomes[each.uid]
        assert isinstance(outcome, Failed)
        assert outcome.status.plugin == "Signs"
        assert 'running "Signs" plugin: signature' in outcome.status.message


class SignsByTurns(Signs):
    """Good in the cycle and bad in the worker."""

    name = "SignsByTurns"

    def cache_key(self, state: ClassState) -> Hashable:
        return super().cache_key(state) if "fine" in state.pod.metadata.labels else [1]  # type: ignore[return-value]


def slots_in_use(evaluator: ShardEvaluator) -> list[int]:
    pools = (*evaluator._answers.filter_pools, *evaluator._answers.score_pools)
    return [len(pool) for pool in pools]


def test_a_class_that_cannot_be_prepared_takes_no_slot() -> None:
    (framework,) = framework_with(SignsByTurns, FILTER).values()
    evaluator = ShardEvaluator(NodeTable(), framework, Ties())
    evaluator.prepare("good", small_pod("good", fine="yes"))
    before = slots_in_use(evaluator)
    for number in range(20):
        with pytest.raises(PluginFailed, match='running "SignsByTurns" plugin: cache_key'):
            evaluator.prepare(f"bad{number}", small_pod("bad"))
    assert slots_in_use(evaluator) == before


def test_a_worker_names_the_plugin_that_has_no_key() -> None:
    core = worker(framework_with(SignsByTurns, FILTER))
    core.handle(state(1, *NODES), 0.0)
    found = answers(
        core.handle(propose(ask_for(small_pod("bad"), "bad"), ask_for(small_pod("p", fine=""), "good")), 0.0)
    )
    failure = found["bad"].failure
    assert failure is not None
    assert failure.plugin == "SignsByTurns"
    assert found["good"].ladder.nodes


def test_hints_are_asked_about_each_pod_that_a_plugin_may_tell_apart() -> None:
    """A plugin without hints is asked nothing that could tell them apart."""
    one, other = wishing("p", "a"), wishing("q", "b")
    assert _entry(Gated, one).equivalence != _entry(Gated, other).equivalence
    assert _entry(ByAnnotation, one).equivalence == _entry(ByAnnotation, other).equivalence


class Gated(ByAnnotation):
    """Waits for a node of the name that the annotation says."""

    name = "Gated"

    def events(self) -> Sequence[Registration]:
        return (Registration(Resource.NODE, Action.ADD, lambda pod, before, now, objects: self.wish(pod) == now.name),)


def _entry(plugin: type[ByAnnotation], rejected: Pod) -> QueuedPodInfo:
    (framework,) = framework_with(plugin, FILTER).values()
    return QueuedPodInfo(rejected.uid, rejected, framework, 0.0, unschedulable_plugins=(plugin.name,))
