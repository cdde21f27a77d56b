"""The counts of a class as columns over the pods of a table, and a shard's summary made of them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from flotilla.plugin import ABSENT, LabelValue
from shared.cluster.columns import IndexedColumn, IntColumn
from shared.cluster.labelclasses import LabelClass, Predicate
from shared.cluster.nodetable import NodeTable
from shared.cluster.terms import TermCounts
from shared.model.load import PodLoad
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.rules import Aspect, Count, Matcher, Rules
from shared.plugins.interpodaffinity.summary import Domains, Summary


@dataclass(frozen=True, slots=True, eq=False)
class PodsThatCount(IndexedColumn):
    """What the pods of each node add to a count."""

    rules: Rules
    aspect: Aspect
    key: str

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PodsThatCount)
            and (self.aspect, self.key) == (other.aspect, other.key)
            and (self.rules is other.rules or self.rules.identity == other.rules.identity)
        )

    def __hash__(self) -> int:
        return hash((self.rules.identity, self.aspect, self.key))

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        count = (self.aspect, self.key)
        for matches, amount in self.rules.own.get(count, ()):
            _add_rows(column, table.label_classes.counts(_of_classes(matches)), amount)
        for term, rows in table.terms.about(self.rules.namespace):
            amount = self.rules.of_term(term).get(count, 0)
            if amount:
                _add_rows(column, dict(rows), amount)

    def amount(self, pod: PodLoad) -> int:
        return self.rules.effect(pod).get((self.aspect, self.key), 0)


class ShardCounts:
    """The counts of one class in one shard's table; what is asked twice in between two changes is answered at once."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._columns: dict[Count, PodsThatCount] = {}
        self._generation = -1
        self._carried: Counter[Count] = Counter()
        self._counted: list[Count] = []

    def column(self, aspect: Aspect, key: str) -> PodsThatCount:
        found = self._columns.get((aspect, key))
        if found is None:
            found = self._columns[aspect, key] = PodsThatCount(self.rules, aspect, key)
        return found

    def counted(self, table: NodeTable) -> list[Count]:
        """All that any of the table's pods may count for, by the pod's own terms or by theirs; in order."""
        if self._generation != table.terms.generation:
            before = set(self._carried)
            self._follow(table.terms)
            if self._generation < 0 or before != self._carried.keys():
                self._counted = sorted({*self.rules.own, *self._carried})
            self._generation = table.terms.generation
        return self._counted

    def _follow(self, terms: TermCounts) -> None:
        """Keeps how many different terms of placed pods count for what."""
        changes = terms.since(self._generation)
        if changes is None:
            self._carried.clear()
            changes = [(term, True) for term, _ in terms.about(self.rules.namespace)]
        for term, appeared in changes:
            for count in self.rules.of_term(term):
                self._carried[count] += 1 if appeared else -1
                if not self._carried[count]:
                    del self._carried[count]

    def summarize(self, table: NodeTable, summary: Summary) -> Summary:
        """Adds what this shard's pods count for."""
        for aspect, key in self.counted(table):
            if aspect == "contributions":
                continue
            numbers = table.columns.of_nodes(LabelValue(key))[: table.size]
            amounts = table.columns.of_pods(self.column(aspect, key))[: table.size]
            here = numbers != ABSENT
            if not amounts[here].any():
                if aspect == "score" and self._contributes(table, key):
                    summary["scored"] = True
                continue
            if aspect == "affinity" and self.rules.is_first_of_its_kind:
                summary["matches"] = summary.get("matches", 0) + int(amounts[here].sum())
            elif aspect == "symmetric":
                summary["shunned"] = True
            elif aspect == "score":
                summary["scored"] = True
            domains = _domains(table, key, numbers, amounts)
            if domains:
                summary.setdefault("counts", {}).setdefault(aspect, {})[key] = domains
        return summary

    def _contributes(self, table: NodeTable, key: str) -> bool:
        """Whether any weight was counted, even if the sum is 0."""
        here = table.columns.of_nodes(LabelValue(key))[: table.size] != ABSENT
        return bool(table.columns.of_pods(self.column("contributions", key))[: table.size][here].any())


def _domains(table: NodeTable, key: str, numbers: IntColumn, amounts: IntColumn) -> Domains:
    """The sums by domain, as far as others are to know of them."""
    if key == HOSTNAME and not table.shared_hostnames:
        return {}
    values = table.label_values(key).items
    counting = np.flatnonzero(amounts)
    counting = counting[numbers[counting] != ABSENT]
    # The weighted bincount adds up floats, which are exact for any number of pods that there can be.
    sums = np.bincount(numbers[counting], weights=amounts[counting]).astype(np.int64)
    domains = {values[number]: int(sums[number]) for number in np.flatnonzero(sums).tolist()}
    if key == HOSTNAME:
        return {value: count for value, count in domains.items() if value in table.shared_hostnames}
    return domains


def _add_rows(column: IntColumn, rows: dict[int, int], amount: int) -> None:
    column[list(rows)] += amount * np.array(list(rows.values()), dtype=np.int64)


def _of_classes(matches: Matcher) -> Predicate:
    def predicate(pods: LabelClass) -> bool:
        return matches(pods.namespace, pods.label_map())

    return predicate
