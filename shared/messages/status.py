"""What every process of a pipeline says about itself when it is asked: for `flotilla status` and the console."""

import msgspec

from shared.model.base import Count, Seconds, SignedSeconds

LEADER, STANDBY = "leader", "standby"


class AskStatus(msgspec.Struct, frozen=True, omit_defaults=True, tag="ask-status"):
    """To every process of every service: each answers once, naming this `id`."""

    id: str


class Distribution(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A histogram: observations up to each bound and above the one before, then those above the last bound.

    `total`: the sum of all observations. All of it only grows while the process lives.
    """

    bounds: tuple[SignedSeconds, ...]
    counts: tuple[Count, ...]
    total: SignedSeconds


class ProcessStatus(msgspec.Struct, frozen=True, omit_defaults=True, tag="process-status"):
    """One process. `id`: the question's.

    `started`, `now`: Unix times by its own clock. `cpu`: seconds since it started. `memory`: resident bytes.
    `pipeline`: its identity, empty until it knows the cluster.
    `role`: leader or standby; empty for workers, binders and a process that has not seen its Lease yet. `since` when
    (Unix time). `term`: a leader's. `leader`: whom a standby sees lead, as the Lease names it.
    `problems`: why it is not ready, by check; ready if empty.
    `positions`: how far it has read or written: `watch`, the number of the watcher's last message, and `seq`, the
    state's sequence number.
    `hears`: the names of the processes whose heartbeats it hears.
    `expected_workers`: how many workers run beside it, as its settings say; 0 if unknown.
    `values`: counters and gauges of its metrics, under their names; what they have by label is `name/label value`.
    `distributions`: its histograms of durations, all labels together.
    """

    id: str
    service: str
    name: str
    pid: Count
    host: str
    version: str
    started: Seconds
    now: Seconds
    cpu: Seconds
    memory: Count
    url: str = ""
    pipeline: str = ""
    role: str = ""
    since: Seconds = 0.0
    term: Count = 0
    leader: str = ""
    problems: dict[str, str] = {}
    positions: dict[str, Count] = {}
    hears: tuple[str, ...] = ()
    values: dict[str, SignedSeconds] = {}
    distributions: dict[str, Distribution] = {}
    expected_workers: Count = 0
