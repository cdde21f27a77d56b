"""Between cycle and workers: who lives, and who holds which shards."""

import msgspec


class WorkerBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="worker-beat"):
    """A worker lives. `incarnation` differs for each start of the process.

    `assignment` is the newest one it has taken (0: none), of cycle's `epoch`; `shards` are those it holds by it.
    `seq` is how far it has followed the state, 0 while it loads. `leaving`: it is about to end, and is to have none.
    `at`: the worker's Unix time, 0 if it does not say. `signs`: its answers name its incarnation, and those that do not
    are not its own. `uptime`: seconds since the process began, 0 if it does not say.
    """

    worker: str
    incarnation: str
    epoch: int = 0
    assignment: int = 0
    shards: list[int] = []
    shard_count: int = 0
    seq: int = 0
    leaving: bool = False
    at: float = 0.0
    signs: bool = False
    uptime: float = 0.0


class Assign(msgspec.Struct, frozen=True, omit_defaults=True, tag="assign"):
    """To one worker: these shards are yours. `number` only rises within cycle's epoch. Sent until a beat shows it.

    `refused`: why it gets none. The process of this `incarnation` never will: it is to end, and to start again.
    `repeats`: it is sent again every few seconds, so that a worker knows whether a cycle is there.
    """

    epoch: int
    number: int
    shards: list[int]
    shard_count: int
    refused: str = ""
    incarnation: str = ""
    repeats: bool = False
