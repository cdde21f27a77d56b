"""Victims that are chosen so far, and where members of the gang go once these are gone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import msgspec

from services.cycle.round.admission import PodInfo
from shared.framework.victim_sets import Cost, choose, cost_of, undominated
from shared.messages.preemption import Candidate, GangAsk, ShardFindings, Victim
from shared.messages.rounds import Given
from shared.messages.state import Loads

Findings = Sequence[ShardFindings]


@dataclass(frozen=True, slots=True)
class Choice:
    """Victims so far, and nodes of members. `touched`: groups among the victims that were not gone before."""

    victims: dict[str, Victim] = field(default_factory=dict)
    placed: tuple[tuple[PodInfo, str], ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()

    def cost(self) -> Cost:
        return cost_of(self.victims.values(), self.budgets)

    def left(self) -> dict[str, int]:
        """What budgets allow in addition."""
        spent = Counter(budget for victim in self.victims.values() for budget in victim.budgets)
        return {budget: allowed - spent[budget] for budget, allowed in self.budgets.items()}

    def also(self, findings: Findings) -> Self:
        """With what these answers tell of budgets, and of the pods of groups that are gone."""
        gone = {victim.uid: victim for of_shard in findings for victim in of_shard.gone}
        budgets = {key: allowed for of_shard in findings for key, allowed in of_shard.budgets.items()}
        return replace(self, victims={**self.victims, **gone}, budgets={**self.budgets, **budgets})

    def extended(self, pods: Sequence[PodInfo], candidates: Sequence[Candidate], members: int) -> Self | None:
        """Finds room for the first `members` of these pods at the lowest cost; None if there is none.

        How the nodes are divided among workers, and the order of their answers, do not matter.
        """
        chosen = choose(undominated(candidates, members, len(candidates)), members, self.left())
        if chosen is None:
            return None
        nodes = [each.node for each in chosen for _ in range(each.members)]
        victims = {
            victim.uid: msgspec.structs.replace(victim, node=each.node) for each in chosen for victim in each.victims
        }
        touched = {victim.group for victim in victims.values() if victim.group}
        return replace(
            self,
            victims={**self.victims, **victims},
            placed=(*self.placed, *zip(pods[:members], nodes, strict=False)),
            touched=self.touched | touched,
        )

    def supposed(self, ask: GangAsk) -> GangAsk:
        """The ask, with these victims gone and these members in place."""
        if not self.victims and not self.placed:
            return ask
        loads = Loads()
        given = [Given(info.uid, node, loads.number(info.template.load)) for info, node in self.placed]
        gone = [victim.uid for victim in self.victims.values() if victim.group not in ask.gone_groups]
        return msgspec.structs.replace(ask, given=given, loads=loads.items, gone=gone)


def cheaper(one: Choice | None, other: Choice | None) -> Choice | None:
    """The first of two that cost the same."""
    if one is None or other is None:
        return one or other
    return other if other.cost() < one.cost() else one


class Where(NamedTuple):
    """The values of a domain's labels, and the node, if it is one node only."""

    values: tuple[str, ...] = ()
    node: str = ""


def by_domain(findings: Findings, *, each_node: bool = False) -> dict[Where, list[Candidate]]:
    """`each_node`: each node is a domain of its own."""
    found: dict[Where, list[Candidate]] = {}
    for of_shard in findings:
        for each in of_shard.candidates:
            found.setdefault(Where(each.domain, each.node if each_node else ""), []).append(each)
    return found
