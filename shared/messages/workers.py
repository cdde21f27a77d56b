"""Between cycle and workers: heartbeats, and assignments of shards."""

import msgspec

from shared.model.base import Count, Seconds


class WorkerBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="worker-beat"):
    """A worker's heartbeat. `incarnation` differs for each process.

    `assignment` is the newest one it has accepted (0: none), of the cycle's `epoch`; `shards` are those it holds by
    it. `seq`: the state it has applied, 0 while it loads. `leaving`: it is about to end and wants no shards. `at`:
    the worker's Unix time, `uptime`: seconds since the process began; 0 if unknown. `signs`: its answers carry its
    incarnation, and any without it are not its own.
    """

    worker: str
    incarnation: str
    epoch: Count = 0
    assignment: Count = 0
    shards: list[Count] = []
    shard_count: Count = 0
    seq: Count = 0
    leaving: bool = False
    at: Seconds = 0.0
    signs: bool = False
    uptime: Seconds = 0.0


class Assign(msgspec.Struct, frozen=True, omit_defaults=True, tag="assign"):
    """To one worker: these shards are yours. `number` only rises within the cycle's epoch. Sent until a heartbeat
    shows it.

    `refused`: why the process of this `incarnation` gets none and is to restart. `repeats`: sent again every few
    seconds, so that a worker knows whether a cycle is there.
    """

    epoch: Count
    number: Count
    shards: list[Count]
    shard_count: Count
    refused: str = ""
    incarnation: str = ""
    repeats: bool = False
