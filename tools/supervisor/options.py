"""Which processes a pipeline consists of, and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from shared.config.settings import ApiSettings, Settings
from shared.errors import UserError

SINGLE = ("watcher", "queue", "snapshot", "cycle")
"""Services of which one leads."""
APART, CORE = "apart", "core"
GROUPINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    APART: {},
    CORE: {"core": SINGLE},
    "pairs": {"core": SINGLE, "pair": ("worker", "binder")},
    "whole": {"whole": (*SINGLE, "worker", "binder")},
}
"""Which services share a process, by its name. Of workers and binders, the first ones are beside leaders."""
START_PATIENCE = 90.0
"""Seconds. Longer than a snapshot waits after the loss of its ledger, as at every start with an embedded Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """A server that is None is embedded; the embedded API server is the simulator."""

    workers: int = 2
    binders: int = 1
    standbys: bool = False
    """Run a second process of each service of which one leads."""
    grouping: str = APART
    """One of GROUPINGS."""
    settings: Settings = field(default_factory=Settings)
    """Of all services; the pipeline sets names, servers and HTTP addresses."""
    nats_url: str | None = None
    redis_url: str | None = None
    api: ApiSettings | None = None
    simulated_nodes: int = 0
    """Nodes of the made-up cluster that the simulator starts with."""
    simulated_kubelets: bool = True
    """Whether the simulator runs bound pods, and the controllers of workloads and claims."""
    start_patience: float = START_PATIENCE
    """Seconds until everything is ready."""
    output: TextIO | None = None
    """For the processes' output; None: `services.log` in the pipeline's folder."""
    as_json: bool = False
    """Log lines as JSON."""
    live: bool = False
    """The output is a terminal."""
    colour: bool = False
    held: frozenset[str] = frozenset()
    """Names of services that only `Pipeline.release` starts."""
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Environment variables besides the settings, by service; for benchmarks and fault runs."""

    def services(self) -> dict[str, str]:
        """The kind of each service, by name."""
        if self.workers < 1 or self.binders < 1:
            raise UserError("a pipeline needs at least one worker and one binder")
        if self.workers > self.settings.shard_count:
            raise UserError(
                f"{self.workers} workers cannot share {self.settings.shard_count} shards: each needs at least one"
            )
        workers = {f"worker-{i}": "worker" for i in range(self.workers)}
        binders = {f"binder-{i}": "binder" for i in range(self.binders)}
        standbys = {f"{name}-standby": name for name in SINGLE} if self.standbys else {}
        return {name: name for name in SINGLE} | standbys | workers | binders

    def processes(self) -> dict[str, tuple[str, ...]]:
        """The services in each process, by its name; all processes but the servers."""
        found: dict[str, tuple[str, ...]] = {}
        for name, kind in self.services().items():
            process = self._process_of(name, kind)
            found[process] = (*found.get(process, ()), name)
        return found

    def _process_of(self, name: str, kind: str) -> str:
        if self.grouping not in GROUPINGS:
            raise UserError(f"the grouping is one of {', '.join(GROUPINGS)}, not {self.grouping!r}")
        for group, kinds in GROUPINGS[self.grouping].items():
            if kind in kinds:
                number = name.removeprefix(kind)
                if not set(SINGLE) & set(kinds) or number in ("", "-standby"):
                    return f"{group}{number}"
                return group if number == "-0" else name
        return name
