"""Change: something that might make a pod fit; whether it does, only the scheduler says."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shared.messages.explaining import Cause, Supposed
from shared.model.pod import Pod

NOTHING_SUPPOSED = Supposed()

Edit = Callable[[Pod], Pod]


def unchanged(pod: Pod) -> Pod:
    return pod


@dataclass(frozen=True, slots=True)
class Change:
    """`text` completes "it would fit if". `lifts`: the plugins whose rejection it is about.

    `certain`: the changed pod or cluster is exactly what would be judged. `detail`: for programs.
    """

    text: str
    kind: str
    lifts: frozenset[str]
    edit: Edit = unchanged
    supposed: Supposed = NOTHING_SUPPOSED
    detail: Mapping[str, Any] = field(default_factory=dict)
    certain: bool = True

    def after(self, other: "Change") -> "Change":
        """Both together."""

        def edit(pod: Pod) -> Pod:
            return self.edit(other.edit(pod))

        return Change(
            f"{other.text}, and {self.text}",
            "both",
            self.lifts | other.lifts,
            edit,
            other.supposed.also(self.supposed),
            {"first": {"kind": other.kind, **other.detail}, "second": {"kind": self.kind, **self.detail}},
            self.certain and other.certain,
        )


def leaving(plugin: str, cause: Cause) -> Iterator[Change]:
    """A pod that is in the way leaves."""
    for named in cause.pods:
        yield Change(
            f"pod {named.key} left node {named.node}",
            "remove-pod",
            frozenset({plugin}),
            supposed=Supposed(gone=(named.uid,)),
            detail={"pod": named.key, "node": named.node},
        )


def with_spec(pod: Pod, **fields: Any) -> Pod:
    return replace(pod, spec=replace(pod.spec, **fields))
