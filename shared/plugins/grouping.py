"""Scores that nodes have in groups: what a decision changes in them can be computed without asking the nodes.

A plugin that counts pods by domain scores a node by the counts of its domains and of the node itself. So nodes with
equal label values and equally many of these pods always have one raw score: they are a *group*. A placement moves its
node to the next group and changes the counts of its domains, and with them the raw scores of whole groups.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from flotilla.nodes import Index, NodeView
from flotilla.plugin import ClassState
from shared.cluster.columns import Rows
from shared.model.load import PodLoad
from shared.model.objects import Pod


class Group(NamedTuple):
    """`values`: the nodes' values of the labels that the plugin looks at; None for a label that they lack.

    `pods`: the counted pods on each node, 0 if the plugin does not look at single nodes; `IGNORED` if the plugin leaves
    the nodes out of the range of raw scores.
    """

    values: tuple[str | None, ...]
    pods: int


IGNORED = -1


class Grouped(NamedTuple):
    """The group of each of some rows, `of_rows`, as an index into `groups`."""

    groups: list[Group]
    of_rows: Index


class Follower(ABC):
    """The rules of one class, by which its groups are followed from decision to decision."""

    labels: tuple[str, ...]
    """Those whose values groups have."""

    @abstractmethod
    def raw_scores(self, summary: Any, late: Any, groups: Sequence[Group]) -> list[int]:
        """Of the nodes of each group, by the merged summary and the merged late summary."""

    @abstractmethod
    def after(self, group: Group) -> Group:
        """The group of a node of this group once it has one more pod of the class."""

    @abstractmethod
    def placed(self, summary: Any, group: Group) -> Any:
        """The shard's or the merged summary after a pod of the class was placed on a node of the group."""

    @abstractmethod
    def counts(self, load: PodLoad) -> bool:
        """Whether pods like this are counted."""


class GroupedScore(ABC):
    """A plugin with a summary and a normalised score, whose raw scores may be followed in groups."""

    @abstractmethod
    def can_follow(self, state: ClassState) -> bool:
        """Whether the raw scores of the class depend on groups only."""

    @abstractmethod
    def group(self, state: ClassState, nodes: NodeView, rows: Rows) -> Grouped | None:
        """Of these feasible rows, for a class that can be followed; None if it cannot be on these."""

    @abstractmethod
    def follower(self, pod: Pod, summary: Any) -> Follower | None:
        """For a class of pods like this with such a summary; None if it cannot be followed."""
