"""With messages lost, doubled or late, after a whole listing the consumer has the watcher's state."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Relist,
    Unreadable,
    WatchBeat,
    WatchChange,
    Watched,
)
from shared.watch import WatchReader

World = dict[tuple[Kind, str], str]
KINDS = (Kind.POD, Kind.NODE, Kind.SERVICE)
KEYS = st.sampled_from("abcd")


@dataclass
class Teller:
    """Stands for the watcher: a world, and messages that tell of it. `scheduler` carries the version of a pod."""

    epoch: int = 1
    seq: int = 0
    version: int = 0
    world: World = field(default_factory=dict)

    def tell(self, *changes: WatchChange) -> Watched:
        self.seq += 1
        return Watched(self.epoch, self.seq, list(changes))

    def put(self, kind: Kind, key: str) -> Watched:
        self.version += 1
        self.world[kind, key] = str(self.version)
        return self.tell(self.change(kind, key))

    def drop(self, kind: Kind, key: str) -> Watched:
        self.world.pop((kind, key), None)
        return self.tell(_change(kind, key, gone=True))

    def change(self, kind: Kind, key: str) -> WatchChange:
        version = self.world[kind, key]
        if int(version) % 5 == 0:
            return Unreadable(kind, key, "ns" if kind is Kind.POD else "", key, "problem", scheduler=version)
        return _change(kind, key, version)

    def listing(self, kind: Kind) -> list[Watched]:
        """That of services comes with those of all kinds that there is nothing of."""
        if kind is Kind.SERVICE:
            empty = [self.tell(ListingBegins(other), ListingEnds(other)) for other in Kind if other not in KINDS]
            return [*empty, *self._listing(kind)]
        return self._listing(kind)

    def _listing(self, kind: Kind) -> list[Watched]:
        keys = [key for of, key in self.world if of is kind]
        begin = self.tell(ListingBegins(kind))
        return [begin, *(self.tell(self.change(kind, key)) for key in keys), self.tell(ListingEnds(kind))]

    def listings(self) -> list[Watched]:
        return [message for kind in KINDS for message in self.listing(kind)]

    def restart(self) -> None:
        self.epoch, self.seq = self.epoch + 1, 0


def _change(kind: Kind, key: str, version: str = "", *, gone: bool = False) -> WatchChange:
    if kind is Kind.POD:
        return PodChange(key, "ns", key, scheduler=version, gone=gone)
    return NodeChange(key, gone=gone) if kind is Kind.NODE else ObjectChange(OBJECT_KINDS[kind], key, gone=gone)


@dataclass
class Consumer:
    reader: WatchReader = field(default_factory=lambda: WatchReader("consumer"))
    world: World = field(default_factory=dict)
    asked: int = 0

    def hear(self, message: Watched | WatchBeat, now: float) -> None:
        for effect in self.reader.take(message, now):
            match effect:
                case PodChange(uid=key, scheduler=version, gone=gone):
                    self.set(Kind.POD, key, None if gone else version)
                case NodeChange(name=key, gone=gone):
                    self.set(Kind.NODE, key, None if gone else "")
                case ObjectChange(kind=object_kind, key=key, gone=gone):
                    self.set(Kind(object_kind.value), key, None if gone else "")
                case Unreadable(kind=kind, uid=key, scheduler=version):
                    self.set(kind, key, version if kind is Kind.POD else "")
                case Relist():
                    self.asked += 1
        self.reader.validate()

    def set(self, kind: Kind, key: str, version: str | None) -> None:
        if version is None:
            self.world.pop((kind, key), None)
        else:
            self.world[kind, key] = version


def comparable(world: World) -> World:
    return {(kind, key): version if kind is Kind.POD else "" for (kind, key), version in world.items()}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KINDS), KEYS),
        st.tuples(st.just("drop"), st.sampled_from(KINDS), KEYS),
        st.tuples(st.just("list"), st.sampled_from(KINDS), st.just("")),
        st.tuples(st.just("restart"), st.just(Kind.POD), st.just("")),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(STEPS, st.data())
def test_after_a_complete_listing_both_sides_know_the_same(
    steps: list[tuple[str, Kind, str]], data: st.DataObject
) -> None:
    teller, consumer = Teller(), Consumer()
    said: list[Watched] = []
    for step, kind, key in steps:
        match step:
            case "put":
                said.append(teller.put(kind, key))
            case "drop":
                said.append(teller.drop(kind, key))
            case "list":
                said += teller.listing(kind)
            case "restart":
                teller.restart()
    copies = [message for message in said for _ in range(data.draw(st.integers(0, 2)))]
    arrived = copies and data.draw(st.permutations(copies)) if data.draw(st.booleans()) else copies
    for message in arrived:
        consumer.hear(message, 0.0)
        if consumer.reader.synced and consumer.reader.epoch == teller.epoch and message.seq == teller.seq:
            assert consumer.world == comparable(teller.world)
    consumer.hear(WatchBeat(teller.epoch, teller.seq), 1.0)
    for message in teller.listings():
        consumer.hear(message, 1.0)
    assert consumer.reader.synced
    assert consumer.world == comparable(teller.world)


@settings(deadline=None, max_examples=100)
@given(STEPS, st.sets(st.integers(0, 80)))
def test_a_synced_consumer_knows_what_the_watcher_knows(steps: list[tuple[str, Kind, str]], lost: set[int]) -> None:
    """In order, some are lost: whenever it says that it is synced, it is, and whenever it is not, it asks."""
    teller, consumer = Teller(), Consumer()
    for effect in consumer.reader.start(0.0):
        consumer.asked += isinstance(effect, Relist)
    number = 0
    for step, kind, key in steps:
        if step == "restart":
            teller.restart()
            continue
        told = {"put": lambda: [teller.put(kind, key)], "drop": lambda: [teller.drop(kind, key)]}.get(step)  # noqa: B023
        for message in told() if told else teller.listing(kind):
            number += 1
            if number not in lost:
                consumer.hear(message, 0.0)
        consumer.hear(WatchBeat(teller.epoch, teller.seq), 0.0)
        if consumer.reader.synced:
            assert consumer.world == comparable(teller.world)
        else:
            assert consumer.reader.next_deadline() is not None
    assert consumer.asked >= 1
