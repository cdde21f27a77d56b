"""The search over columns and shards against the same done slowly, one node and one pod at a time."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.model.objects import Node, Pod, PodDisruptionBudget
from shared.plugins.preemption import best_of
from testing.builders import node, pod
from tests.plugins.preemption.support import Cluster, budget, shown

APPS = ["web", "db"]
PORTS = [0, 0, 80, 81]
NEW = "new"


@dataclass
class Case:
    nodes: list[Node]
    pods: list[Pod]
    budgets: list[PodDisruptionBudget]
    new: Pod


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = [node(f"n{i}").capacity(cpu=str(draw(st.integers(2, 8)))).build() for i in range(draw(st.integers(1, 6)))]
    pods = []
    for i in range(draw(st.integers(0, 20))):
        made = pod(f"p{i}").uid(f"p{i}").priority(draw(st.integers(0, 4))).label(app=draw(st.sampled_from(APPS)))
        made = made.request(cpu=str(draw(st.integers(1, 3)))).started(f"2026-01-01T00:{i:02}:00Z")
        port = draw(st.sampled_from(PORTS))
        made = made.host_port(port) if port else made
        where = draw(st.sampled_from(nodes)).name
        pods.append((made.nominated(where) if draw(st.integers(0, 5)) == 0 else made.on(where)).build())
    budgets = [
        budget(f"b{i}", draw(st.integers(0, 2)), {"app": draw(st.sampled_from(APPS))})
        for i in range(draw(st.integers(0, 2)))
    ]
    new = pod(NEW).uid(NEW).priority(draw(st.integers(1, 5))).request(cpu=str(draw(st.integers(1, 6))))
    port = draw(st.sampled_from(PORTS))
    return Case(nodes, pods, budgets, (new.host_port(port) if port else new).build())


def cpu(of: Pod) -> int:
    return int(str(of.spec.containers[0].resources.requests["cpu"]))


def ports(of: Pod) -> set[int]:
    return {port.host_port for port in of.spec.containers[0].ports}


class Box:
    """One node as a plain scheduler sees it: the pods there, and which ports are taken."""

    def __init__(self, case: Case, of: Node) -> None:
        self.case, self.node = case, of
        self.there = [p for p in case.pods if p.spec.node_name == of.name]
        self.taken = {port for p in self.there for port in ports(p)}
        self.nominated = [
            p
            for p in case.pods
            if p.status.nominated_node_name == of.name and not p.spec.node_name and p.priority >= case.new.priority
        ]

    def remove(self, gone: Pod) -> None:
        self.there.remove(gone)
        self.taken -= ports(gone)

    def add(self, back: Pod) -> None:
        self.there.append(back)
        self.taken |= ports(back)

    def fits(self) -> bool:
        return self._fits(self.nominated) and self._fits([])

    def _fits(self, more: list[Pod]) -> bool:
        new = self.case.new
        taken = self.taken.union(*map(ports, more))
        used = sum(map(cpu, [*self.there, *more]))
        return not (ports(new) & taken) and used + cpu(new) <= int(str(self.node.status.allocatable["cpu"]))

    def victims(self) -> list[str] | None:
        lesser = [p for p in self.there if p.priority < self.case.new.priority]
        lesser.sort(key=lambda p: (-p.priority, p.started or 0.0))
        for p in lesser:
            self.remove(p)
        if not lesser or not self.fits():
            return None
        protected = self._protected(lesser)
        victims = []
        for p in [p for p in lesser if p.name in protected] + [p for p in lesser if p.name not in protected]:
            self.add(p)
            if not self.fits():
                self.remove(p)
                victims.append(p)
        return [p.name + "!" * (p.name in protected) for p in lesser if p in victims]

    def _protected(self, lesser: list[Pod]) -> set[str]:
        left = [b.status.disruptions_allowed for b in self.case.budgets]
        found = set()
        for p in lesser:
            for i, each in enumerate(self.case.budgets):
                assert each.spec.selector is not None
                if p.metadata.labels["app"] == each.spec.selector.match_labels["app"]:
                    left[i] -= 1
                    if left[i] < 0:
                        found.add(p.name)
        return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(1, 3))
def test_the_same_victims_on_the_same_nodes(case: Case, shards: int) -> None:
    found = Cluster(case.nodes, case.pods, case.budgets, shards=shards).preempt(case.new)
    if any(Box(case, each).fits() for each in case.nodes):
        assert found.again
        return
    wanted = {
        each.name: victims
        for each in case.nodes
        if cpu(case.new) <= int(str(each.status.allocatable["cpu"]))  # a node that is too small never helps
        if (victims := Box(case, each).victims()) is not None
    }
    assert shown(found.candidates) == wanted
    assert list(found.best) == best_of(found.candidates)
    if wanted:
        assert found.nominated == found.best[0].node
        assert found.victims == tuple(found.best[0].victims)
        assert found.message == ""
    else:
        assert found.nominated == ""
        assert found.message.startswith(f"preemption: 0/{len(case.nodes)} nodes are available: ")
