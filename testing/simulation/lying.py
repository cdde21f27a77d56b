"""Processes in wrong hands: what they send, with their own credentials and in the real protocol, is not so.

Some lies gain something (a place, a volume, an eviction); the others replace any value. Binders, the snapshot and the
watcher tell only lies that docs/security.md says to be in vain: the pipeline trusts them otherwise.
"""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shared.bus.wire import EPOCHS
from shared.cluster.nodetable import shard_of
from shared.messages.state import EPOCH_SHIFT
from testing.simulation.drawing import NODES, SHARDS

SEQ = 1 << EPOCH_SHIFT
FUTURE = 1 << 62
MUCH = 1 << 40
HIGHEST = 2_000_001_000
"""The highest priority that there is."""
NAMES = ("", "u1", "u2", "w1", "w2", "b1", "b2", "n0", "n1", "n5", "a.*>", "9e9", "zone")

TRUSTED = frozenset({"binder", "snapshot", "watcher"})
"""Services whose messages may not be altered at random."""

Plain = dict[str, Any]


class Liar:
    """What becomes of messages of one process: `share` of them are altered before they are sent."""

    def __init__(self, service: str, share: float, dice: random.Random) -> None:
        self._otherwise = _promise_the_future if service in TRUSTED else falsify
        self._share = share
        self._dice = dice

    def __call__(self, raw: bytes) -> bytes:
        if self._dice.random() >= self._share:
            return raw
        plain = msgspec.msgpack.decode(raw, strict=False)
        wanted = LIES.get(plain["type"])
        if wanted is not None and self._dice.random() < 0.5:
            wanted(plain, self._dice)
        else:
            self._otherwise(plain, self._dice)
        try:
            return msgspec.msgpack.encode(plain)
        except OverflowError:
            return raw


def _proposals(plain: Plain, dice: random.Random) -> None:
    """The state is of the future, or all pods fit on one node, mostly one of its own, and nowhere better."""
    if dice.random() < 0.1:
        plain["seq"] = FUTURE
    own = [name for name in NODES if shard_of(name, SHARDS) in plain["shards"]]
    where = dice.choice(own if own and dice.random() < 0.9 else NODES)
    for answer in plain["answers"]:
        answer["ladder"] = {"nodes": [where] * 64, "scores": [MUCH] * 64, "ties": [0] * 64}
        answer["summary"] = {**answer.get("summary", {}), "feasible": 1}


def _candidates(plain: Plain, dice: random.Random) -> None:
    """Victims are of no importance, or one is enough."""
    for finding in plain["findings"]:
        for candidate in finding.get("candidates", ()):
            candidate["victims"] = candidate["victims"][: dice.choice((0, 1))]
            for victim in candidate["victims"]:
                victim["priority"] = -1


def _batch(plain: Plain, dice: random.Random) -> None:
    """Pods request nothing, or go before all others."""
    for queued in plain["pods"]:
        spec = queued["pod"]["spec"]
        if dice.random() < 0.5:
            spec["priority"] = HIGHEST
        for container in spec["containers"]:
            container.pop("resources", None)


def _commit(plain: Plain, dice: random.Random) -> None:
    """Pods go to another node, as if they requested nothing, or were the most important ones."""
    for load in plain["loads"] if dice.random() < 0.5 else ():
        load["requests"] = {}
        load["priority"] = HIGHEST
    for wanted in (*plain["decisions"], *plain.get("nominations", ())):
        wanted["assignment"]["node"] = dice.choice(NODES)
        wanted["asks"] = {}
        if dice.random() < 0.3:
            wanted["assignment"].pop("version", None)


def _outcomes(plain: Plain, dice: random.Random) -> None:
    """The binder waits, for much longer than any permit."""
    for outcome in plain["outcomes"]:
        outcome["wait"] = dice.choice((0.0, 1e9))


def _binder_beat(plain: Plain, dice: random.Random) -> None:
    """The binder's clock is wrong, or it has no room."""
    if dice.random() < 0.5:
        plain["at"] = dice.choice((0.0, 1.0, 1e12))
    else:
        plain["room"] = 0


def _activate(plain: Plain, dice: random.Random) -> None:
    plain["uids"] = list(NAMES)


def _evict(plain: Plain, dice: random.Random) -> None:
    """Victims that the nomination does not have: the binder asks before it touches them."""
    victims = plain["victims"]
    others = [{**victim, "uid": dice.choice(NAMES)} for victim in victims]
    plain["victims"] = dice.choice((others, victims[:1] * 2, [*victims, *others]))


NUMBERS = ("number", "round", "ask", "search", "assignment", "orders")
"""Fields that rise within a term."""


def raised(raw: bytes, dice: random.Random) -> bytes | None:
    """The message as of a term or a number that its sender will not reach soon; None if it has neither.

    What the watcher says of the cluster is believed, so no old state is sent again in its name.
    """
    plain = msgspec.msgpack.decode(raw, strict=False)
    names = (
        []
        if plain["type"] == "watched"
        else [name for name in (*EPOCHS, *NUMBERS) if isinstance(plain.get(name), int) and plain[name]]
    )
    if not names:
        return None
    name = dice.choice(names)
    plain[name] += dice.choice((1, 1000, 1 << 19) if name in EPOCHS else (1, 1000, MUCH))
    return msgspec.msgpack.encode(plain)


def _promise_the_future(plain: Plain, dice: random.Random) -> None:
    """The message is of a term that is years ahead."""
    for name in EPOCHS:
        if name in plain:
            plain[name] = FUTURE


LIES: Mapping[str, Callable[[Plain, random.Random], None]] = {
    "proposals": _proposals,
    "candidates": _candidates,
    "batch": _batch,
    "commit": _commit,
    "bound": _outcomes,
    "binder-beat": _binder_beat,
    "activate": _activate,
    "evict": _evict,
}
"""By kind of message."""


def falsify(plain: Any, dice: random.Random) -> None:
    """Replace one value at any depth, except epochs and the type: with a wrong one, receivers ignore the rest."""
    places: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            if key not in ("type", *EPOCHS):
                places.append((value, key))
                collect(inner)

    collect(plain)
    if places:
        holder, key = dice.choice(places)
        holder[key] = other_than(holder[key], dice)


def other_than(value: Any, dice: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return dice.choice([0, 1, value + 1, value - 1, value + SEQ, -value, 1 << 40, (1 << 63) - 1, 1 << 63])
        case float():
            return dice.choice([0.0, -value, value * 1e6, 1e300, math.inf, math.nan])
        case str():
            return dice.choice([value + "x", *NAMES])
        case list():
            return dice.choice([[], value[:1], value + value[:1], value[::-1], [None]])
        case dict():
            return dice.choice([{}, dict(list(value.items())[:1])])
        case _:
            return dice.choice([0, "", [], {}])
