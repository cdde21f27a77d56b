"""What the cycle remembers of classes between rounds: which workers know them, and what to expect of them."""

from collections.abc import Iterable, Mapping, Sequence
from operator import is_

from flotilla.results import Topology
from shared.bounded import BoundedDict
from shared.framework.profile import Framework, merge
from shared.messages.evaluation import Summary
from shared.messages.rounds import Proposals

MAX_CLASSES = 1 << 14
MAX_MERGED = 64
"""Merged summaries. What workers say of a class is the same again and again only while their answers are known."""


class ClassCache:
    """Bounded, and least recently used classes go first; a class that is forgotten costs a round trip."""

    def __init__(self) -> None:
        self.nodes = 0
        """Nodes in the cluster, by the latest merged summary; 0 before the first."""
        self._known: dict[str, BoundedDict[str, None]] = {}
        self._guesses: BoundedDict[str, Summary] = BoundedDict(MAX_CLASSES)
        self._merged: BoundedDict[str, tuple[Sequence[Summary], Summary]] = BoundedDict(MAX_MERGED)
        """What was merged last, and to what."""
        self._latest: dict[str, Summary] = {}
        self._topologies: BoundedDict[str, Topology | None] = BoundedDict(MAX_CLASSES)
        self._lasting: dict[str, BoundedDict[str, bool]] = {}
        """By worker and class, whether its last answer lasts, or can be followed."""

    def keep_workers(self, workers: Iterable[str]) -> None:
        """Other workers will know no class when they come back."""
        self._known = {worker: self._known.get(worker, BoundedDict(MAX_CLASSES)) for worker in workers}
        self._lasting = {worker: self._lasting.get(worker, BoundedDict(MAX_CLASSES)) for worker in workers}

    def is_known(self, class_id: str, worker: str) -> bool:
        """Whether the worker has seen a pod of the class, so it need not be sent one."""
        return class_id in self._known[worker]

    def remember_known(self, proposals: Proposals) -> None:
        known, lasting = self._known[proposals.worker], self._lasting[proposals.worker]
        for answer in proposals.answers:
            lasting[answer.class_id] = answer.lasts or answer.followed
            if answer.unknown:
                known.pop(answer.class_id, None)
            else:
                known[answer.class_id] = None

    def lasts(self, class_id: str) -> bool:
        """Whether the last answers of all workers about the class last, so that the next ones most likely will."""
        return bool(self._lasting) and all(lasting.get(class_id, False) for lasting in self._lasting.values())

    def merged(self, class_id: str, framework: Framework, summaries: Sequence[Summary]) -> Summary:
        """Merges summaries; returns the cached result if these same objects were merged last."""
        last = self._merged.get(class_id)
        if last is not None and len(last[0]) == len(summaries) and all(map(is_, last[0], summaries)):
            return last[1]
        merged = merge(framework, summaries)
        self._merged[class_id] = summaries, merged
        return merged

    def guess(self, class_id: str) -> Summary | None:
        """The expected merged summary."""
        return self._guesses.get(class_id)

    def borrowed(self, profile: str) -> Summary | None:
        """The latest merged summary of any class of the profile: pods that come together are often similar."""
        return self._latest.get(profile)

    def expect(self, class_id: str, profile: str, summary: Summary) -> None:
        self._guesses[class_id] = summary
        self._latest[profile] = summary

    def drop_guess(self, class_id: str) -> None:
        self._guesses.pop(class_id, None)

    def topologies(self, classes: Iterable[str]) -> dict[str, Topology | None]:
        """By which node labels decisions matter to each class, as far as known."""
        return {class_id: self._topologies[class_id] for class_id in classes if class_id in self._topologies}

    def stands_alone(self, class_id: str) -> bool:
        """Whether decisions are known to matter to the class only by filling nodes."""
        return self._topologies.get(class_id, Topology()) is None

    def learn_topologies(self, found: Mapping[str, Topology | None]) -> None:
        for class_id, topology in found.items():
            self._topologies[class_id] = topology
