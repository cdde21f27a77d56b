"""Whether a gang has a placement, found by trying all of them: one pod after the other, each on each node."""

from collections.abc import Mapping, Sequence

from shared.model.objects import Node, Pod
from tests.rounds.hardrules import admits

RACK, BLOCK = "example.com/rack", "example.com/block"


def most_placed(nodes: Sequence[Node], pods: Sequence[Pod], within: Sequence[Node]) -> int:
    """How many of these pods fit together on the nodes `within`, in any order: by cpu and hard topology rules."""
    return _Trial(nodes, pods, within).most({})


class _Trial:
    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod], within: Sequence[Node]) -> None:
        self._nodes, self._pods, self._within = nodes, pods, within
        self._alike = [_class(each) for each in pods]
        self._known: dict[tuple[tuple[str, str], ...], int] = {}

    def most(self, where: Mapping[int, Node]) -> int:
        """With these pods (by number) placed already."""
        state = tuple(sorted((self._alike[i], there.name) for i, there in where.items()))
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = self._most(where)
        return known

    def _most(self, where: Mapping[int, Node]) -> int:
        best, tried = len(where), set[str]()
        placed = [(self._pods[i], there) for i, there in where.items()]
        for i, each in enumerate(self._pods):
            if i in where or self._alike[i] in tried:
                continue
            tried.add(self._alike[i])
            for there in self._within:
                if _has_room(each, there, placed) and admits(each, there, self._nodes, placed):
                    best = max(best, self.most({**where, i: there}))
                if best == len(self._pods):
                    return best
        return best


def fitting_domains(
    nodes: Sequence[Node], pods: Sequence[Pod], least: int, keys: Sequence[str]
) -> dict[tuple[str, ...], int]:
    """For each combination of values of these labels whose nodes hold enough of the pods: how many they hold."""
    found: dict[tuple[str, ...], int] = {}
    for values in {_values(each, keys) for each in nodes} - {None}:
        assert values is not None
        fits = most_placed(nodes, pods, [each for each in nodes if _values(each, keys) == values])
        if fits >= least:
            found[values] = fits
    return found


def _values(node: Node, keys: Sequence[str]) -> tuple[str, ...] | None:
    labels = node.metadata.labels
    return tuple(labels[key] for key in keys) if all(key in labels for key in keys) else None


def _class(pod: Pod) -> str:
    return f"{sorted(pod.metadata.labels.items())} {pod.spec}"


def _has_room(pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
    if any(node.metadata.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    used = sum(_cpu(other) for other, there in placed if there is node)
    return used + _cpu(pod) <= int(node.status.allocatable["cpu"].milli)


def _cpu(pod: Pod) -> int:
    return sum(int(container.resources.requests["cpu"].milli) for container in pod.spec.containers)
