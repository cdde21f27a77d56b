"""docs/state-machines.md, made from the tables in the code: python -m tests.state_machines > docs/state-machines.md."""

from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import TypeVar

from services.binder.attempts import TRANSITIONS as BINDING_ATTEMPT
from services.binder.eviction_state import VICTIM_TRANSITIONS as VICTIM
from services.queue.scheduling.queued_pod_info import TRANSITIONS as QUEUED_POD
from services.snapshot.state.ledger import TRANSITIONS as LEDGER_ENTRY
from shared.kube.election import TRANSITIONS as ELECTION
from shared.watch import TRANSITIONS as WATCH_READER

INTRODUCTION = """# State machines

Made from the tables `TRANSITIONS` in the code, by `python -m tests.state_machines > docs/state-machines.md`. A test
compares the two; property tests compare the tables with what the code does.
"""
State = TypeVar("State", bound=Enum)
Labelled = tuple[tuple[Enum, Enum, str], ...]


def page() -> str:
    return "\n".join(
        [
            INTRODUCTION,
            *diagram("Leader election", "shared/kube/election.py", ELECTION),
            *diagram("Following the watch stream", "shared/watch.py", WATCH_READER),
            *table("Queued pod", "services/queue/scheduling/queued_pod_info.py", QUEUED_POD),
            *table("Assumed pod", "services/snapshot/state/ledger.py", LEDGER_ENTRY),
            *table("Binding attempt", "services/binder/attempts.py", BINDING_ATTEMPT),
            *table("Victim of an eviction", "services/binder/eviction_state.py", VICTIM),
        ]
    )


def diagram(title: str, path: str, transitions: Labelled) -> Iterator[str]:
    yield from (f"## {title}", "", f"`{path}`", "", "```mermaid", "stateDiagram-v2")
    yield f"    [*] --> {transitions[0][0].value}"
    for before, after, why in transitions:
        yield f"    {before.value} --> {after.value}: {why}"
    yield from ("```", "")


def table(title: str, path: str, transitions: Mapping[State, Set[State]]) -> Iterator[str]:
    yield from (f"## {title}", "", f"`{path}`", "", "| state | may be followed by |", "|---|---|")
    order = list(transitions)
    for before, following in transitions.items():
        named = ", ".join(str(state.value) for state in sorted(following, key=order.index))
        yield f"| {before.value} | {named or 'nothing: it is an end'} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
