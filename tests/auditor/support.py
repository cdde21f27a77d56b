"""Support for tests of the auditor: a core on virtual time, fed by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from shared.messages.queue import QueueContents
from shared.messages.state import Assignment, LedgerEntry
from shared.messages.watch import Kind
from shared.model.load import load_of
from testing.auditor.core import AuditorCore, Event, Expected, Gone, LedgerRead, Listed, QueueRead, Seen, Tick
from testing.auditor.violations import Invariant, Limits, Violation
from testing.builders import NodeBuilder, PodBuilder, node, pod

LAG = 5.0
PATIENCE = 10.0
BEGIN = 1_000_000.0


class Audit:
    """Nodes and pods may be builders. `broken`: all violations so far."""

    def __init__(self, *nodes: NodeBuilder, pods: Sequence[PodBuilder] = ()) -> None:
        self.core = AuditorCore(limits=Limits(lag=LAG, patience=PATIENCE))
        self.now = BEGIN
        self.broken: list[Violation] = []
        self.tell(Listed(Kind.NODE, [n.build() for n in nodes]))
        self.tell(Listed(Kind.POD, [p.build() for p in pods]))
        self.wait(LAG)

    def tell(self, event: Event) -> list[Violation]:
        found = self.core.handle(event, self.now)
        self.core.validate()
        self.broken += found
        return found

    def wait(self, seconds: float) -> list[Violation]:
        self.now += seconds
        return self.tell(Tick())

    def see(self, *objects: PodBuilder | NodeBuilder) -> list[Violation]:
        """The watch shows them."""
        return [violation for made in objects for violation in self.tell(Seen(made.build()))]

    def bind(self, made: PodBuilder, on: str) -> list[Violation]:
        """The watch shows it waiting, and then bound."""
        return [*self.see(made), *self.see(made.on(on))]

    def lose(self, made: PodBuilder) -> list[Violation]:
        return self.tell(Gone(Kind.POD, made.build().uid))

    def lose_node(self, name: str) -> list[Violation]:
        return self.tell(Gone(Kind.NODE, name))

    def ledger(self, *entries: LedgerEntry) -> list[Violation]:
        return self.tell(LedgerRead(entries, self.now))

    def queue(self, **places: Sequence[PodBuilder]) -> list[Violation]:
        return self.tell(QueueRead(contents(**places), self.now))

    def settle(self) -> list[Violation]:
        """Wait until every pending violation is confirmed or explained; returns all violations so far."""
        self.wait(LAG + 0.1)
        return self.broken

    def finish(self, unbound: Expected = 0) -> list[Violation]:
        found = self.core.finish(self.now, unbound)
        self.broken += found
        return found


def contents(**places: Sequence[PodBuilder]) -> QueueContents:
    names: dict[str, Any] = {name: [] for name in QueueContents.__struct_fields__}
    names.update({name: [made.build().uid for made in pods] for name, pods in places.items()})
    return QueueContents(**names)


def entry(made: PodBuilder, on: str, *, attempt: int = 1, window: float = 1000, clock: float = BEGIN) -> LedgerEntry:
    """`clock`: that of the owner, when it writes the entry."""
    built = made.build()
    return LedgerEntry(
        assignment=Assignment(built.uid, built.namespace, built.name, "default-scheduler", on),
        attempt=attempt,
        load=load_of(built),
        epoch=1,
        number=1,
        deadline=clock + window,
        window=window,
    )


def invariants(violations: Sequence[Violation]) -> list[Invariant]:
    return [violation.invariant for violation in violations]


def small(name: str, cpu: str = "4") -> NodeBuilder:
    return node(name).capacity(cpu=cpu, memory="8Gi")


def web(name: str, cpu: str = "1") -> PodBuilder:
    return pod(name).request(cpu=cpu, memory="1Gi")


def versioned(made: PodBuilder, resource_version: int) -> PodBuilder:
    return replace(made, metadata=structs.replace(made.metadata, resource_version=str(resource_version)))


def renewed(made: NodeBuilder, resource_version: int) -> NodeBuilder:
    return replace(made, metadata=structs.replace(made.metadata, resource_version=str(resource_version)))
