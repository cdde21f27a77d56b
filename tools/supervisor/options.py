"""What a pipeline is made of, and which processes that means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from shared.config.settings import ApiSettings, Settings
from shared.errors import UserError

SINGLE = ("watcher", "queue", "snapshot", "cycle")
"""Services of which a pipeline has one."""
START_PATIENCE = 90.0
"""Longer than a snapshot waits that has lost its ledger, which is so at every start with a Redis of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """None for a server means: one of its own, embedded; for the API server that is the simulator."""

    workers: int = 2
    binders: int = 1
    standbys: bool = False
    """Whether there are two of each service of which one leads."""
    settings: Settings = field(default_factory=Settings)
    """Of all services alike; names, servers and HTTP addresses are filled in."""
    nats_url: str | None = None
    redis_url: str | None = None
    api: ApiSettings | None = None
    start_patience: float = START_PATIENCE
    """Seconds until everything is ready."""
    output: TextIO | None = None
    """Where the processes' log lines go; none: to `services.log` in the pipeline's folder."""
    as_json: bool = False
    """Whether log lines are for machines."""
    held: frozenset[str] = frozenset()
    """Names of services that are not started before `Pipeline.release`."""
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name of a service: its environment beside its settings, for what only benchmarks ask of it."""

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
