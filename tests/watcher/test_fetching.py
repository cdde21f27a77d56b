"""A follower that fetches a listing page by page, while the stream goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages.watch import (
    Kind,
    KindListed,
    ListingBegins,
    ListingEnds,
    PodChange,
    Relist,
    WatchBeat,
    WatchChange,
    Watched,
)
from shared.watch import Effect, WatchReader

KEYS = st.sampled_from("abcd")
LISTED = [Kind.POD.value]


@dataclass
class Server:
    """Pods by key, with their versions, and what the watcher has published of them."""

    version: int = 1
    seq: int = 0
    pods: dict[str, int] = field(default_factory=dict)
    unpublished: list[PodChange] = field(default_factory=list)
    stream: list[Watched] = field(default_factory=list)

    def put(self, key: str) -> None:
        self.version += 1
        self.pods[key] = self.version
        self.unpublished.append(a_pod(key, self.version))

    def drop(self, key: str) -> None:
        if self.pods.pop(key, None) is not None:
            self.version += 1
            self.unpublished.append(a_pod(key, self.version, gone=True))

    def publish(self, most: int = 3) -> None:
        """In messages of at most this many changes."""
        changes, self.unpublished = self.unpublished, []
        for start in range(0, len(changes), most):
            part = changes[start : start + most]
            self.tell(*part, version=int(part[-1].scheduler))

    def tell(self, *changes: PodChange | ListingBegins | ListingEnds, version: int = 0) -> None:
        self.seq += 1
        self.stream.append(Watched(1, self.seq, list(changes), version or self.version))

    def pages(self, size: int = 1) -> Iterator[KindListed]:
        """All of the present state."""
        version, pods = self.version, sorted(self.pods.items())
        return iter([self._page(version, pods, start, size) for start in range(0, max(1, len(pods)), size)])

    def _page(self, version: int, pods: list[tuple[str, int]], start: int, size: int) -> KindListed:
        part: list[WatchChange] = [a_pod(key, number) for key, number in pods[start : start + size]]
        return KindListed(Kind.POD.value, version, part, "more" if start + size < len(pods) else "")


def a_pod(key: str, version: int, *, gone: bool = False) -> PodChange:
    """`scheduler` carries the version."""
    return PodChange(key, "ns", key, scheduler=str(version), gone=gone)


@dataclass
class Follower:
    reader: WatchReader = field(default_factory=lambda: WatchReader("standby"))
    pods: dict[str, int] = field(default_factory=dict)
    wants: int = 0
    _newest: dict[str, int] = field(default_factory=dict)

    def hear(self, message: Watched | WatchBeat) -> None:
        self._apply(self.reader.take(message, 0.0))

    def take(self, page: KindListed) -> None:
        self._apply(self.reader.take_page(page))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Relist():
                    self.wants += 1
                case PodChange(uid=key, scheduler=version, gone=gone):
                    if version:
                        assert int(version) >= self._newest.get(key, 0), "it goes back in time"
                        self._newest[key] = int(version)
                    self.pods.pop(key, None)
                    if not gone:
                        self.pods[key] = int(version)
        self.reader.validate()


def a_follower(server: Server) -> Follower:
    """That has heard the watcher, and begins to fetch."""
    follower = Follower()
    follower.hear(WatchBeat(1, server.seq, LISTED))
    assert follower.reader.fetch() == [Kind.POD]
    return follower


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("put", "drop")), KEYS),
        st.tuples(st.sampled_from(("publish", "hear", "list", "fetch")), st.just("")),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(STEPS, STEPS)
def test_pages_and_the_stream_together_show_the_cluster(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    """In whatever order they arrive, no object goes back in time, and in the end all is known.

    The first page may be listed long before it arrives.
    """
    server = Server()
    for step, key in before:
        if step in ("put", "drop", "publish"):
            getattr(server, step)(*([key] if key else []))
    follower = a_follower(server)
    heard, pages = len(server.stream), None
    for step, key in [*after, *[("fetch", "")] * 6]:
        match step:
            case "hear":
                for message in server.stream[heard : heard + 1]:
                    follower.hear(message)
                    heard += 1
            case "list" | "fetch":
                pages = server.pages() if pages is None else pages
                page = None if step == "list" else next(pages, None)
                if page is not None:
                    follower.take(page)
            case _:
                getattr(server, step)(*([key] if key else []))
    assert follower.reader.synced
    server.publish()
    for message in server.stream[heard:]:
        follower.hear(message)
    assert follower.reader.synced
    assert follower.pods == server.pods
    assert follower.wants == 0


def test_a_lost_message_ends_the_fetch() -> None:
    server = Server()
    server.put("a")
    follower = a_follower(server)
    server.publish()
    server.put("b")
    server.publish()
    follower.hear(server.stream[1])
    assert not follower.reader.fetches(Kind.POD)
    for page in server.pages():
        follower.take(page)
    assert not follower.reader.synced
    assert follower.reader.next_deadline() is not None
    assert follower.reader.fetch() == [Kind.POD]
    for page in server.pages():
        follower.take(page)
    assert follower.reader.synced and follower.pods == server.pods


def test_a_listing_in_the_stream_counts_instead_of_pages() -> None:
    server = Server()
    follower = a_follower(server)
    server.put("a")
    pages = server.pages()
    server.unpublished.clear()
    server.tell(ListingBegins(Kind.POD))
    server.tell(a_pod("a", server.version))
    for message in server.stream:
        follower.hear(message)
    assert not follower.reader.fetches(Kind.POD)
    for page in pages:
        follower.take(page)
    assert not follower.reader.synced
    server.tell(ListingEnds(Kind.POD))
    follower.hear(server.stream[-1])
    assert follower.reader.synced and follower.pods == server.pods


def test_a_new_watcher_ends_the_fetch() -> None:
    server = Server()
    follower = a_follower(server)
    follower.hear(WatchBeat(2, 0, LISTED, after_epoch=1, after_seq=server.seq))
    assert not follower.reader.fetches(Kind.POD)
    assert not follower.reader.synced


def test_who_has_heard_no_watcher_cannot_fetch() -> None:
    assert WatchReader("standby").fetch() == []


def test_a_follower_that_knows_everything_can_fetch_it_again() -> None:
    server = Server()
    server.put("a")
    server.put("b")
    follower = a_follower(server)
    for page in server.pages():
        follower.take(page)
    del server.pods["a"]
    server.version += 1  # nothing in the stream says so
    assert follower.reader.synced and follower.reader.fetch() == [Kind.POD]
    for page in server.pages():
        assert follower.reader.synced
        follower.take(page)
    assert follower.pods == server.pods
