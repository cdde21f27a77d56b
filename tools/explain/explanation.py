"""Explanation: everything that is said about one pod, as plain data for people's pages and for programs."""

import msgspec

from shared.explain.advice import Help
from shared.messages.explaining import NodeModel, Remembered, ScoredNode


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that reject the pod for the same reason, in words and in kube-scheduler's (`reason`)."""

    nodes: int
    text: str
    plugin: str = ""
    reason: str = ""
    examples: tuple[str, ...] = ()


class NodeSaid(msgspec.Struct, frozen=True, kw_only=True):
    """About one node that was asked about by name; `exists`: false if there is none of this name."""

    node: str
    fits: bool
    text: str
    exists: bool = True
    score: ScoredNode | None = None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in the queue. Times are Unix times."""

    state: str
    since: float
    attempts: int
    message: str = ""
    waits_for: tuple[str, ...] = ()
    gate: str = ""
    gate_reason: str = ""
    until: float | None = None
    node: str = ""
    nominated: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence`: the verdict, and the change that helps first, for a person.

    `binding`: decided, and not yet seen on its node.
    `state`: pending, placed, preempted, or unknown. `groups`: nodes by their first rejection. `pairs`: two changes that
    help together, where none does alone. `won_by`: what the best node is better by. `journal`: decisions as they were
    made, the last one first. `now`: Unix time. `notes`: what else one should know.
    `gang`: the pod group with which a pending pod is placed together.
    """

    pod: str
    sentence: str
    state: str
    binding: bool = False
    now: float
    uid: str = ""
    nodes: int = 0
    feasible: int | None = None
    waiting: Waiting | None = None
    groups: tuple[Group, ...] = ()
    help: tuple[Help, ...] = ()
    pairs: tuple[Help, ...] = ()
    best: tuple[ScoredNode, ...] = ()
    weights: dict[str, int] = {}
    won_by: str = ""
    asked_nodes: tuple[NodeSaid, ...] = ()
    models: tuple[NodeModel, ...] = ()
    preemption: str = ""
    journal: tuple[Remembered, ...] = ()
    notes: tuple[str, ...] = ()
    gang: str = ""
