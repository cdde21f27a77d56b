"""A schedule out of a seed: the scene, what its users do, and what goes wrong meanwhile."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.errors import UserError
from testing.simulation.schedule import Entry, Schedule

ROUND_SIZES = (1, 3, 16, 256)
LEADING = ("queue", "cycle", "snapshot", "watcher")
PROCESSES = (*LEADING, "w1", "w2", "b1", "b2")
NODES = [f"n{i}" for i in range(6)]
SHARDS = 4
CALM = "-calm"
"""Ends the names of scenes in which nothing goes wrong, and in which more is expected of everybody."""
TROUBLE_BEGINS = 2.0
MISHAP_EVERY = 3.0
"""Seconds, on average."""

Arguments = dict[str, object]
WORDS: Mapping[str, tuple[str, ...]] = {
    "how": ("kill", "stop"),
    "is": ("last", "later", "this"),
    "redis": ("stays", "restarts", "flushed", "rolls_back"),
    "snapshot": ("dies", "lives"),
}
"""What arguments that are no number take."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`happenings`: how often each happens compared with the others. `seconds`: for how long there is trouble."""

    happenings: Mapping[str, float]
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
GANGS = Scene(
    {"create_gang": 3, "create": 3, "one_more": 1, "delete": 1, "finish": 1, "gang_goes": 1.5, "update": 1}, 15.0
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
SCENES: Mapping[str, Scene] = {
    "plain": PLAIN,
    "wishes": PLAIN,
    "gangs": GANGS,
    "preemption": PREEMPTION,
    "waits": WAITS,
}
UNUSUAL = frozenset({"renew", "delete", "change_node", "grow"})
"""What does not happen in calm scenes."""


def _of_all(dice: random.Random) -> Arguments:
    return {"name": dice.choice(PROCESSES)}


def _for_a_while(dice: random.Random) -> Arguments:
    return {"for": dice.choice((0.3, 2.0, 6.0))}


def _pause(dice: random.Random) -> Arguments:
    name = dice.choice((*PROCESSES, "snapshot", "b1", "b2"))
    return {"name": name, "for": dice.choice((1.0, 3.0, 9.0, 14.0, 18.0, 25.0, 40.0, 120.0))}


def _roll_back(dice: random.Random) -> Arguments:
    return {"by": dice.choice((0.3, 1.0, 2.0)), "snapshot": dice.choice(WORDS["snapshot"])}


def _fail_over(dice: random.Random) -> Arguments:
    return _roll_back(dice) | {"share": dice.choice((0.3, 0.7, 1.0)), "for": dice.choice((0.5, 4.0, 15.0))}


def _total(dice: random.Random) -> Arguments:
    """Who is asked to end takes up to 4 s for it."""
    how, redis = dice.choice(WORDS["how"]), dice.choice(WORDS["redis"])
    return {"how": how, "redis": redis, "for": dice.choice((0.2, 5.0, 20.0) if how == "kill" else (5.0, 20.0))}


def _release(dice: random.Random) -> Arguments:
    return _of_all(dice) | {"is": dice.choice(("last", "later", "later", "this"))}


def _lies(dice: random.Random) -> Arguments:
    name = dice.choice(("w1", "w2", "w1", "w2", "cycle", "queue"))
    return {"name": name, "share": dice.choice((0.05, 0.3, 1.0)), "for": dice.choice((1.0, 5.0))}


def _late_calls(dice: random.Random) -> Arguments:
    share = dice.choice((0.1, 0.5))
    return {"share": share, "doubled": share / 2, "for": dice.choice((3.0, 10.0))}


MISHAPS: Mapping[str, tuple[float, Callable[[random.Random], Arguments]]] = {
    "kill": (3, _of_all),
    "stop": (1, _of_all),
    "pause": (3, _pause),
    "total": (0.7, _total),
    "release": (1, _release),
    "lies": (1, _lies),
    "lose_lease": (1.5, lambda dice: {"name": dice.choice(LEADING)}),
    "delete_lease": (0.5, lambda dice: {"name": dice.choice(LEADING)}),
    "bus_down": (1, _for_a_while),
    "partition": (1, lambda dice: _of_all(dice) | _for_a_while(dice)),
    "messages": (3, lambda dice: {"share": dice.choice((0.05, 0.15, 0.4)), "for": dice.choice((3.0, 10.0))}),
    "calls": (2, lambda dice: {"share": dice.choice((0.05, 0.15, 0.4)), "for": dice.choice((3.0, 10.0))}),
    "stall": (1, lambda dice: {"for": dice.choice((3.0, 12.0, 36.0))}),
    "watches_break": (1, lambda dice: {}),
    "redis_down": (1, _for_a_while),
    "redis_restarts": (0.5, lambda dice: {}),
    "redis_flushed": (1, lambda dice: {}),
    "redis_rolls_back": (1, _roll_back),
    "redis_fails_over": (0.7, _fail_over),
    "fault": (1, _of_all),
    "clock": (1, lambda dice: _of_all(dice) | {"by": dice.choice((-60.0, -10.0, 1.5, 30.0, 60.0))}),
    "replay": (1, lambda dice: {"messages": dice.choice((5, 50, 200))}),
    "late_calls": (1.5, _late_calls),
    "behind": (1, lambda dice: {"versions": dice.choice((3, 30, 300)), "for": dice.choice((0.5, 3.0))}),
}
"""How often each happens compared with the others, and what it takes."""


def check(schedule: Schedule) -> None:
    """Raise UserError for a scene, a happening or a process that does not exist, or an argument that is missing."""
    if (kind := SCENES.get(schedule.scene.removesuffix(CALM))) is None:
        raise UserError(f"scene={schedule.scene}: expected one of {', '.join(SCENES)}")
    standbys = [f"{name}-2" for name in LEADING]
    for entry in schedule.entries:
        if entry.what in MISHAPS:
            needed = set(MISHAPS[entry.what][1](random.Random(0)))
        elif entry.what == "standby" or entry.what in kind.happenings:
            needed = {"name"} if entry.what == "standby" else set()
        else:
            listed = ", ".join(sorted({*MISHAPS, *kind.happenings, "standby"}))
            raise UserError(f"entry {entry.number}: {entry.what!r} does not happen here; expected one of {listed}")
        if missing := sorted(needed - entry.arguments.keys()):
            raise UserError(f"entry {entry.number}: {entry.what} takes {', '.join(f'{each}=' for each in missing)}")
        for argument, value in entry.arguments.items():
            known = {"name": (*PROCESSES, *standbys), **WORDS}.get(argument, (value,))
            if value not in known:
                raise UserError(f"entry {entry.number}: {argument}={value}: expected one of {', '.join(known)}")


BORNE = {"lies": frozenset({"plain", "preemption"})}
"""The scenes in which a mishap breaks nothing that is judged. Whoever decides may lie about what only it judges by:
terms between pods, gangs, volumes that a pod has already."""

MOST_OF = {"lies": 2}
"""Of one run: whoever is found to lie for a third time waits longer for shards than a run lasts."""


def draw(
    seed: int,
    *,
    scene: str = "",
    mishaps: frozenset[str] | None = None,
    round_size: int = 0,
    seconds: float = 0.0,
    mishap_every: float = MISHAP_EVERY,
) -> Schedule:
    """`scene`, `mishaps`, `round_size`, `seconds`: as given, or drawn."""
    dice = random.Random(f"{seed} schedule")
    drawn_scene, drawn_size = dice.choice(sorted(SCENES)), dice.choice(ROUND_SIZES)
    scene, size = scene or drawn_scene, round_size or drawn_size
    kind = SCENES[scene.removesuffix(CALM)]
    ends = seconds or kind.seconds
    calm = scene.endswith(CALM)
    borne = {what for what in MISHAPS if scene in BORNE.get(what, (scene,))}
    chosen = sorted(frozenset() if calm else borne if mishaps is None else mishaps & borne)
    entries = [*_happenings(random.Random(f"{seed} happenings"), kind, ends, calm=calm)]
    if chosen:
        entries += _mishaps(random.Random(f"{seed} mishaps"), chosen, ends, mishap_every)
    entries.sort(key=lambda entry: entry.at)
    numbered = [Entry(number, entry.at, entry.what, entry.arguments) for number, entry in enumerate(entries, 1)]
    return Schedule(seed, scene, size, ends + TROUBLE_BEGINS, tuple(numbered))


def _happenings(dice: random.Random, scene: Scene, seconds: float, *, calm: bool) -> list[Entry]:
    often = {what: weight for what, weight in scene.happenings.items() if not (calm and what in UNUSUAL)}
    found, at = [], TROUBLE_BEGINS
    while (at := at + dice.uniform(0.0, 0.5)) < TROUBLE_BEGINS + seconds:
        found.append(Entry(0, round(at, 3), dice.choices(list(often), list(often.values()))[0], {}))
    return found


def _mishaps(dice: random.Random, chosen: list[str], seconds: float, every: float) -> list[Entry]:
    found = [
        Entry(0, 0.5, "standby", {"name": f"{name}-2"})
        for name in LEADING
        if dice.random() < 0.5 and {"pause", "lose_lease"} & set(chosen)
    ]
    weights = [MISHAPS[what][0] for what in chosen]
    at = TROUBLE_BEGINS
    while (at := at + dice.expovariate(1 / every)) < TROUBLE_BEGINS + seconds:
        what = dice.choices(chosen, weights)[0]
        if sum(entry.what == what for entry in found) == MOST_OF.get(what):
            continue
        arguments = {name: str(value) for name, value in MISHAPS[what][1](dice).items()}
        found.append(Entry(0, round(at, 3), what, arguments))
    return found
