"""What waits to be written into pods' statuses."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.binder.status_queue import NominationCleared, Queued, StatusQueue, StatusWrite, Write
from shared.kube.events_and_conditions import PodRef, PodScheduled

WHY = [PodScheduled("Unschedulable", f"reason {i}", 1.0) for i in range(3)]


def ref(name: str = "p") -> PodRef:
    return PodRef("default", name, f"uid-{name}")


def status(message: int | None = 0, nominated: str | None = None, name: str = "p") -> StatusWrite:
    return StatusWrite(ref(name), None if message is None else WHY[message], nominated)


def taken(statuses: StatusQueue) -> list[Write]:
    found = []
    while (told := statuses.take()) is not None:
        found.append(told)
        statuses.done(told)
        statuses.validate()
    return found


def test_of_several_that_wait_the_last_is_written() -> None:
    statuses = StatusQueue(10)
    places = [statuses.put(status(i)) for i in range(3)]
    assert places == [Queued.NEW, Queued.JOINED, Queued.JOINED]
    assert taken(statuses) == [status(2)]
    assert statuses.idle


def test_fields_that_a_later_write_leaves_out_stay() -> None:
    statuses = StatusQueue(10)
    statuses.put(status(0, "n1"))
    statuses.put(status(1))
    statuses.put(status(None, ""))
    assert taken(statuses) == [status(1, "")]


def test_a_nomination_does_not_move_to_a_later_version_of_the_pod() -> None:
    statuses = StatusQueue(10)
    statuses.put(msgspec.structs.replace(status(0, "n1"), version="1"))
    later = msgspec.structs.replace(status(1), version="2")
    statuses.put(later)
    assert taken(statuses) == [later]


def test_a_nomination_that_is_taken_back_keeps_its_place() -> None:
    statuses = StatusQueue(10)
    back = NominationCleared(ref(), "n1")
    order: list[Write] = [status(0, "n1"), back, status(1, "n1")]
    for told in [*order[:2], back, order[2]]:
        statuses.put(told)
    assert taken(statuses) == order


def test_of_one_pod_nothing_is_written_beside_another_thing() -> None:
    statuses = StatusQueue(10)
    statuses.put(status(0))
    first = statuses.take()
    statuses.put(status(1))
    statuses.put(status(0, name="q"))
    assert statuses.take() == status(0, name="q")
    assert statuses.take() is None
    assert first is not None
    statuses.done(first)
    assert statuses.take() == status(1)


def test_a_failed_write_joins_later_ones() -> None:
    statuses = StatusQueue(10)
    statuses.put(status(0, "n1"))
    first = statuses.take()
    assert first is not None
    statuses.put(status(1))
    statuses.retry(first)
    assert taken(statuses) == [status(1, "n1")]


def test_of_a_pod_that_is_bound_nothing_more_is_said() -> None:
    statuses = StatusQueue(10)
    statuses.put(status(0))
    statuses.forget("uid-p")
    statuses.forget("uid-q")
    assert taken(statuses) == []
    assert statuses.idle


def test_of_a_pod_that_is_bound_meanwhile_nothing_is_tried_again() -> None:
    statuses = StatusQueue(10)
    statuses.put(status(0))
    first = statuses.take()
    assert first is not None
    statuses.forget("uid-p")
    statuses.retry(first)
    assert taken(statuses) == []
    assert statuses.idle


def test_too_many_pods_are_refused() -> None:
    statuses = StatusQueue(1)
    assert statuses.put(status(0)) is Queued.NEW
    assert statuses.put(status(0, name="q")) is Queued.DROPPED
    assert statuses.put(status(1)) is Queued.JOINED


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["status", "back", "take", "take", "done", "again", "forget"]),
        st.sampled_from("pqr"),
        st.integers(0, 2),
        st.sampled_from([None, "", "n1"]),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_the_last_write_of_a_pod_comes_last_and_never_two_at_a_time(
    steps: list[tuple[str, str, int, str | None]],
) -> None:
    statuses = StatusQueue(3)
    writing: list[Write] = []
    written: dict[str, Write] = {}
    wanted: dict[str, PodScheduled | None] = {}
    for step, name, message, nominated in steps:
        match step:
            case "status":
                statuses.put(status(message, nominated, name))
                wanted[name] = WHY[message]
            case "back":
                statuses.put(NominationCleared(ref(name), "n1"))
            case "take":
                told = statuses.take()
                if told is not None:
                    assert told.pod not in [other.pod for other in writing]
                    writing.append(told)
            case "done" if writing:
                told = writing.pop(0)
                statuses.done(told)
                if isinstance(told, StatusWrite):
                    written[told.pod.name] = told
            case "again" if writing:
                statuses.retry(writing.pop(0))
            case "forget":
                statuses.forget(f"uid-{name}")
                wanted.pop(name, None)
        statuses.validate()
    for told in writing:
        statuses.done(told)
        if isinstance(told, StatusWrite):
            written[told.pod.name] = told
    for told in taken(statuses):
        if isinstance(told, StatusWrite):
            written[told.pod.name] = told
    assert statuses.idle
    for name, condition in wanted.items():
        said = written[name]
        assert isinstance(said, StatusWrite)
        assert said.condition == condition
