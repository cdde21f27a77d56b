"""Draws a schedule from a seed: the scene, its actions and its mishaps."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import UserError
from testing.simulation.schedule import NUMBERS, Entry, Schedule

ROUND_SIZES = (1, 3, 16, 256)
LEADING = ("queue", "cycle", "snapshot", "watcher")
PROCESSES = (*LEADING, "w1", "w2", "b1", "b2")
NODES = [f"n{i}" for i in range(6)]
SHARDS = 4
CALM = "-calm"
"""Ends the names of scenes without mishaps, for which more invariants are checked."""
TREES = "-trees"
"""Ends the name of the scene of gangs in which all of them are trees of groups."""
ROLLS = "-rolls"
"""Ends the names of scenes whose only mishaps are that leaders end in turn, as in an upgrade."""
ROLL_EVERY = 3.5
"""Seconds, on average: longer than it takes until the ended leader is ready as a standby."""
TROUBLE_BEGINS = 2.0
MISHAP_EVERY = 3.0
"""Seconds, on average."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`actions`: weights of actions. `seconds`: how long actions and mishaps last."""

    actions: dict[str, float]
    seconds: float


PLAIN = Scene(
    {
        "create": 10,
        "delete": 2,
        "recreate": 1,
        "update": 1,
        "bind_elsewhere": 0.5,
        "finish": 1,
        "renew": 0.7,
        "change_node": 0.7,
        "change_object": 2,
        "nominate": 1,
        "grow": 0.3,
    },
    30.0,
)
WISHES = Scene(PLAIN.actions | {"crowd": 0.3}, PLAIN.seconds)
GANGS = Scene(
    {
        "create_gang": 3,
        "create": 3,
        "one_more": 1,
        "resize": 0.5,
        "delete": 1,
        "finish": 1,
        "gang_goes": 1.5,
        "update": 1,
    },
    15.0,
)
PREEMPTION = Scene(
    {
        "create": 8,
        "go": 2,
        "recreate": 0.5,
        "update": 1,
        "finish": 1,
        "count": 2,
        "rush": 2,
        "nominate": 0.5,
        "renew": 0.4,
        "change_node": 0.4,
        "delete": 0.5,
        "grow": 0.3,
    },
    20.0,
)
WAITS = Scene(
    {
        "create": 8,
        "delete": 3,
        "recreate": 0.5,
        "update": 1,
        "finish": 1,
        "renew": 0.3,
        "change_node": 0.3,
        "bind_elsewhere": 0.7,
        "take_volume": 0.7,
    },
    20.0,
)
DEVICES = Scene(
    {
        "create": 8,
        "create_gang": 1,
        "gang_goes": 0.7,
        "delete": 3,
        "recreate": 0.5,
        "update": 1,
        "finish": 1,
        "renew": 0.3,
        "change_node": 0.3,
        "change_slice": 0.7,
        "drop_claim": 0.5,
        "bind_elsewhere": 0.3,
    },
    20.0,
)
SCENES: Mapping[str, Scene] = {
    "plain": PLAIN,
    "wishes": WISHES,
    "gangs": GANGS,
    "preemption": PREEMPTION,
    "waits": WAITS,
    "devices": DEVICES,
}
UNUSUAL = frozenset({"renew", "delete", "change_node", "grow", "change_slice", "drop_claim"})
"""Actions that calm scenes leave out."""


A_WHILE = (0.3, 2.0, 6.0)
MISHAPS: Mapping[str, tuple[float, dict[str, Sequence[object]]]] = {
    "kill": (3, {"name": PROCESSES}),
    "stop": (1, {"name": PROCESSES}),
    "pause": (
        3,
        {"name": (*PROCESSES, "snapshot", "b1", "b2"), "for": (1.0, 3.0, 9.0, 14.0, 18.0, 25.0, 40.0, 120.0)},
    ),
    "total": (
        0.7,
        {"how": ("kill", "stop"), "redis": ("stays", "restarts", "flushed", "rolls_back"), "for": (0.2, 5.0, 20.0)},
    ),
    "release": (1, {"name": PROCESSES, "is": ("last", "later", "later", "this")}),
    "lies": (1, {"name": PROCESSES, "share": (0.05, 0.3, 1.0), "for": (1.0, 5.0)}),
    "forge": (1, {"name": PROCESSES}),
    "lose_lease": (1.5, {"name": LEADING}),
    "raise_lease": (0.5, {"name": LEADING}),
    "delete_lease": (0.5, {"name": LEADING}),
    "bus_down": (1, {"for": A_WHILE}),
    "partition": (1, {"name": PROCESSES, "for": A_WHILE}),
    "cut_off": (1, {"name": ("b1", "b2"), "for": (6.0, 14.0, 20.0), "api": (0.5, 3.0, 9.0)}),
    "messages": (3, {"share": (0.05, 0.15, 0.4), "for": (3.0, 10.0)}),
    "calls": (2, {"share": (0.05, 0.15, 0.4), "for": (3.0, 10.0)}),
    "stall": (1, {"for": (3.0, 12.0, 36.0)}),
    "watches_break": (1, {}),
    "redis_down": (1, {"for": (*A_WHILE, 60.0)}),
    "redis_restarts": (0.5, {}),
    "redis_flushed": (1, {}),
    "redis_rolls_back": (1, {"by": (0.3, 1.0, 2.0), "snapshot": ("dies", "lives")}),
    "redis_fails_over": (
        0.7,
        {"by": (0.3, 1.0, 2.0), "snapshot": ("dies", "lives"), "share": (0.3, 0.7, 1.0), "for": (0.5, 4.0, 15.0)},
    ),
    "fault": (1, {"name": PROCESSES}),
    "clock": (1, {"name": PROCESSES, "by": (-60.0, -10.0, 1.5, 30.0, 60.0)}),
    "replay": (1, {"messages": (5, 50, 200)}),
    "late_calls": (1.5, {"share": (0.1, 0.5), "doubled": (0.05, 0.25), "for": (3.0, 10.0)}),
    "behind": (1, {"versions": (3, 30, 300), "for": (0.5, 3.0)}),
}
"""Weights of mishaps, and the values of their arguments."""
Arguments = Mapping[str, Mapping[str, Sequence[object]]]
"""By mishap: other values of its arguments."""
ANY_PROCESS = (*PROCESSES, *(f"{name}-2" for name in LEADING))
NAMED: Mapping[str, Sequence[str]] = {"standby": ANY_PROCESS, "roll": LEADING}
"""What is not drawn like mishaps, and the names that it takes."""


def base_of(scene: str) -> str:
    """The scene without what its name ends with."""
    return scene.removesuffix(CALM).removesuffix(ROLLS).removesuffix(TREES)


def _drawn_arguments(what: str, scene: str, dice: random.Random, given: Arguments) -> dict[str, str]:
    found: dict[str, Any] = {}
    liars: dict[str, Sequence[object]] = {"name": LIARS[base_of(scene)]} if what == "lies" else {}
    for name, values in {**MISHAPS[what][1], **liars, **given.get(what, {})}.items():
        if name == "doubled":
            found[name] = found["share"] / 2
        elif what == "release" and name == "is" and scene == "devices":
            found[name] = dice.choice(("later", "this"))  # the last release knows no devices
        elif found.get("how") == "stop" and name == "for":
            found[name] = dice.choice([seconds for seconds in values if seconds != 0.2])  # stopping takes up to 4 s
        else:
            found[name] = dice.choice(values)
    return {name: str(value) for name, value in found.items()}


def check(schedule: Schedule) -> None:
    """Raise UserError for an unknown scene, entry or process, or a missing argument."""
    if (kind := SCENES.get(base_of(schedule.scene))) is None:
        raise UserError(f"scene={schedule.scene}: expected one of {', '.join(SCENES)}")
    for entry in schedule.entries:
        if entry.what not in {*MISHAPS, *kind.actions, *NAMED}:
            listed = ", ".join(sorted({*MISHAPS, *kind.actions, *NAMED}))
            raise UserError(f"entry {entry.number}: {entry.what!r} is not in this scene; expected one of {listed}")
        _, needed = MISHAPS.get(entry.what, (0, {"name": NAMED[entry.what]} if entry.what in NAMED else {}))
        if missing := sorted(needed.keys() - entry.arguments.keys()):
            raise UserError(f"entry {entry.number}: {entry.what} takes {', '.join(f'{each}=' for each in missing)}")
        for argument, value in entry.arguments.items():
            known = ANY_PROCESS if argument == "name" else dict.fromkeys(needed.get(argument, ()))
            if argument not in NUMBERS and known and value not in known:
                raise UserError(
                    f"entry {entry.number}: {argument}={value}: expected one of {', '.join(map(str, known))}"
                )


ALL_LIARS = ("w1", "w2", "w1", "w2", "w1", "w2", "cycle", "queue", "cycle", "queue", "b1", "b2", "snapshot", "watcher")
LIARS = {
    "plain": ALL_LIARS,
    "wishes": ("w1", "w2", "cycle", *ALL_LIARS),
    "preemption": ALL_LIARS,
    "gangs": ("w1", "w2", "b1", "b2", "snapshot", "watcher"),
    "waits": ("b1", "b2", "snapshot", "watcher"),
    "devices": ALL_LIARS,
}
"""By scene: the processes whose lies its invariants survive. A cycle or a queue can lie about gangs, and these and
workers about volumes of bound claims."""

MAX_OF = {"lies": 2, "forge": 2}
"""Per run: after a third lie a worker waits longer for shards than a run lasts."""


def draw(
    seed: int,
    *,
    scene: str = "",
    mishaps: frozenset[str] | None = None,
    round_size: int = 0,
    seconds: float = 0.0,
    mishap_every: float = MISHAP_EVERY,
    often: Mapping[str, float] | None = None,
    arguments: Arguments | None = None,
) -> Schedule:
    """What is not given is drawn. `often`: other weights of some actions; `arguments`: other values for mishaps."""
    dice = random.Random(f"{seed} schedule")
    drawn_scene, drawn_size = dice.choice(sorted(SCENES)), dice.choice(ROUND_SIZES)
    scene, size = scene or drawn_scene, round_size or drawn_size
    kind = SCENES[base_of(scene)]
    kind = Scene({**kind.actions, **(often or {})}, kind.seconds)
    ends = seconds or kind.seconds
    calm = scene.endswith((CALM, ROLLS))
    chosen = sorted(frozenset() if calm else MISHAPS if mishaps is None else mishaps)
    entries = [*_actions(random.Random(f"{seed} happenings"), kind, ends, calm=calm)]
    if chosen:
        entries += _mishaps(random.Random(f"{seed} mishaps"), chosen, scene, ends, mishap_every, arguments or {})
    if scene.endswith(ROLLS):
        entries += _rolls(random.Random(f"{seed} rolls"), ends)
    entries.sort(key=lambda entry: entry.at)
    numbered = [Entry(number, entry.at, entry.what, entry.arguments) for number, entry in enumerate(entries, 1)]
    return Schedule(seed, scene, size, ends + TROUBLE_BEGINS, tuple(numbered))


def _actions(dice: random.Random, scene: Scene, seconds: float, *, calm: bool) -> list[Entry]:
    often = {what: weight for what, weight in scene.actions.items() if not (calm and what in UNUSUAL)}
    found, at = [], TROUBLE_BEGINS
    while (at := at + dice.uniform(0.0, 0.5)) < TROUBLE_BEGINS + seconds:
        found.append(Entry(0, round(at, 3), dice.choices(list(often), list(often.values()))[0], {}))
    return found


def _mishaps(
    dice: random.Random, chosen: list[str], scene: str, seconds: float, every: float, arguments: Arguments
) -> list[Entry]:
    found = [
        Entry(0, 0.5, "standby", {"name": f"{name}-2"})
        for name in LEADING
        if dice.random() < 0.5 and {"pause", "lose_lease"} & set(chosen)
    ]
    weights = [MISHAPS[what][0] for what in chosen]
    at = TROUBLE_BEGINS
    while (at := at + dice.expovariate(1 / every)) < TROUBLE_BEGINS + seconds:
        what = dice.choices(chosen, weights)[0]
        if sum(entry.what == what for entry in found) == MAX_OF.get(what):
            continue
        found.append(Entry(0, round(at, 3), what, _drawn_arguments(what, scene, dice, arguments)))
    return found


def _rolls(dice: random.Random, seconds: float) -> list[Entry]:
    """Every service has a standby. The leaders end in turn, in another order each time."""
    found = [Entry(0, 0.5, "standby", {"name": f"{name}-2"}) for name in LEADING]
    at, turn = TROUBLE_BEGINS + ROLL_EVERY, list[str]()
    while at < TROUBLE_BEGINS + seconds:
        turn = turn or dice.sample(LEADING, len(LEADING))
        found.append(Entry(0, round(at, 3), "roll", {"name": turn.pop()}))
        at += ROLL_EVERY * dice.uniform(0.8, 1.2)
    return found
