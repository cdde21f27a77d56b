"""Objects that become larger than what services tell each other of one (512 KiB), for a while."""

import random
from collections.abc import Callable

from msgspec.structs import replace

from shared.model.objects import ObjectMeta
from testing.simulation.apiserver import ApiServer

LARGE = "simulation/large"
"""The annotation or label that makes an object too large."""
TEXT = "x" * 600_000
SECONDS = (1.0, 5.0, 15.0)
MOST = 2
"""Large objects at a time: each change of one costs milliseconds."""


class Oversized:
    """Annotations can be left out of what is told. Large labels close the node; the short ones are still told."""

    def __init__(self, server: ApiServer, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._server = server
        self._later = later
        self._large = 0

    def enlarge_pod(self, uid: str, dice: random.Random) -> None:
        in_labels = dice.random() < 0.3
        self._change_for_a_while(dice, lambda large: self._set_pod(uid, large=large, in_labels=in_labels))

    def enlarge_node(self, name: str, dice: random.Random) -> None:
        in_labels = dice.random() < 0.3
        self._change_for_a_while(dice, lambda large: self._set_node(name, large=large, in_labels=in_labels))

    def _change_for_a_while(self, dice: random.Random, change: Callable[[bool], None]) -> None:
        if self._large < MOST:
            self._large += 1
            change(True)
            self._later(dice.choice(SECONDS), lambda: self._end(change))

    def _end(self, change: Callable[[bool], None]) -> None:
        self._large -= 1
        change(False)

    def _set_pod(self, uid: str, *, large: bool, in_labels: bool) -> None:
        if (pod := self._server.pods.get(uid)) is not None:
            self._server.put_pod(replace(pod, metadata=_sized(pod.metadata, large=large, in_labels=in_labels)))

    def _set_node(self, name: str, *, large: bool, in_labels: bool) -> None:
        if (node := self._server.nodes.get(name)) is not None:
            self._server.put_node(replace(node, metadata=_sized(node.metadata, large=large, in_labels=in_labels)))


def _sized(metadata: ObjectMeta, *, large: bool, in_labels: bool) -> ObjectMeta:
    texts = {**(metadata.labels if in_labels else metadata.annotations)}
    texts.pop(LARGE, None)
    if large:
        texts[LARGE] = TEXT
    return replace(metadata, labels=texts) if in_labels else replace(metadata, annotations=texts)
