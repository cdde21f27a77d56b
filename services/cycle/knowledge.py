"""What is remembered of classes of pods from one round to the next: who has seen them, and what to expect of them."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from flotilla.results import Topology
from shared.messages.evaluation import Summary
from shared.messages.rounds import Proposals

V = TypeVar("V")

MOST_REMEMBERED = 1 << 14


class Knowledge:
    """Of the classes asked about last, for a bounded number of them; to forget one costs a round trip."""

    def __init__(self) -> None:
        self._known: dict[str, OrderedDict[str, None]] = {}
        self._guesses: OrderedDict[str, Summary] = OrderedDict()
        self._latest: dict[str, Summary] = {}
        self._topologies: OrderedDict[str, Topology | None] = OrderedDict()

    def keep_workers(self, workers: Iterable[str]) -> None:
        """Whoever is not among them will know nothing when it is back."""
        self._known = {worker: self._known.get(worker, OrderedDict()) for worker in workers}

    def is_known(self, class_id: str, worker: str) -> bool:
        """Whether this worker may be taken to know the class, so that it need not be sent a pod."""
        return class_id in self._known[worker]

    def remember_known(self, proposals: Proposals) -> None:
        known = self._known[proposals.worker]
        for answer in proposals.answers:
            if answer.unknown:
                known.pop(answer.class_id, None)
            else:
                _put(known, answer.class_id, None)

    def guess(self, class_id: str) -> Summary | None:
        """The merged summary that is to be expected."""
        return self._guesses.get(class_id)

    def borrowed(self, profile: str) -> Summary | None:
        """That of the class of this profile that was learnt of last: pods that come together are often alike."""
        return self._latest.get(profile)

    def expect(self, class_id: str, profile: str, summary: Summary) -> None:
        _put(self._guesses, class_id, summary)
        self._latest[profile] = summary

    def forget(self, class_id: str) -> None:
        """What was expected of it is expected no more."""
        self._guesses.pop(class_id, None)

    def topologies(self, classes: Iterable[str]) -> dict[str, Topology | None]:
        """As far as they are known: by which labels decisions matter to each class."""
        return {class_id: self._topologies[class_id] for class_id in classes if class_id in self._topologies}

    def stands_alone(self, class_id: str) -> bool:
        """Is it known that decisions matter to the class only by filling nodes?"""
        return self._topologies.get(class_id, Topology()) is None

    def learn_topologies(self, found: Mapping[str, Topology | None]) -> None:
        for class_id, topology in found.items():
            _put(self._topologies, class_id, topology)


def _put(memory: OrderedDict[str, V], class_id: str, value: V) -> None:
    memory[class_id] = value
    memory.move_to_end(class_id)
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)
