"""Services of two releases next to each other understand each other, and what the older one has stored is read."""

import base64
import copy
import re
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest

from shared.model.objects import dec_hook, encode_msgpack
from shared.store.schema import OLDEST_READABLE, SCHEMA
from tests.messages.compatibility import misunderstandings
from tests.messages.description import ROOTS, Wire, name_of
from tests.messages.examples import example
from tests.messages.record import recorded, today

BEFORE = recorded()
ONLY_READ: frozenset[str] = frozenset(
    {
        "Taint.effect",
        "Toleration.operator",
        "Toleration.effect",
        "TopologySpreadConstraint.whenUnsatisfiable",
        "TopologySpreadConstraint.nodeAffinityPolicy",
        "TopologySpreadConstraint.nodeTaintsPolicy",
        "Watched.changes.AlikePods",
        "ObjectUpserted.object.CompositePodGroup",
        "State.objects.CompositePodGroup",
        "Kind.compositepodgroup",
        "ObjectKind.compositepodgroup",
    }
)
"""Values of enums and members of unions that this release reads and never sends by itself.

Named without a value: a field that takes any text, as the API server has it. A text that the last release refuses comes
only from a cluster of whose objects it refused the same. It skips kinds of objects that it does not know in the
watcher's stream; no state has composite groups. AlikePods go to followers only that say that they read them.
"""
RESHAPED: frozenset[str] = frozenset({"ResourceClaim", "ResourceClaimStatus", "ResourceSlice", "CountedMeta"})
"""Structs that the last release sends without their content, to the queue only, and that this one refuses then: until
the watcher is of this release no claim is known, and pods that need one wait.
"""
ONLY_ANSWERED: frozenset[str] = frozenset({"Conflict.fault"})
"""Fields with a new value that only answers what the last release does not send: a decision about devices."""
NEVER_SENT: frozenset[str] = frozenset({"Explain", "Explained", "Explanation"})
"""Messages that no service of the last release sends, and what only they carry; they are gone by now."""
BY_NAME = {name_of(root): root for root in ROOTS}
KNOWN = [name for name in BEFORE.examples if name in BY_NAME]


def test_what_has_changed_since_the_last_release_is_understood_by_both() -> None:
    messages = [message for message in BEFORE.messages if message not in NEVER_SENT]
    structs = {name: struct for name, struct in BEFORE.structs.items() if name not in NEVER_SENT}
    sent = msgspec.structs.replace(BEFORE, messages=messages, structs=structs)
    found = misunderstandings(sent, today(), ONLY_READ)
    told = ((re.split(r"[. ]", problem)[0], problem.partition(" ")[0], problem) for problem in found)
    problems = [problem for struct, field, problem in told if struct not in RESHAPED and field not in ONLY_ANSWERED]
    assert not problems, "\n".join(["the last release and this one would misunderstand each other:", *problems])


def test_the_state_of_the_last_release_is_readable() -> None:
    assert OLDEST_READABLE <= BEFORE.schema <= SCHEMA


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_last_release_wrote_is_read(name: str) -> None:
    """And means the same: written again, it is the same. What was reshaped is refused."""
    plain = msgspec.msgpack.decode(base64.b64decode(BEFORE.examples[name]))
    if name == "State":  # claims and slices are no part of the last release's state
        plain["objects"] = [each for each in plain["objects"] if each["kind"] not in RESHAPED]
    raw = msgspec.msgpack.encode(plain)
    if name in RESHAPED:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(raw, type=BY_NAME[name], dec_hook=dec_hook)
        return
    read: Any = msgspec.msgpack.decode(raw, type=BY_NAME[name], dec_hook=dec_hook)
    assert msgspec.msgpack.decode(encode_msgpack(read)) == plain


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_what_a_later_release_adds_is_passed_over(root: type[msgspec.Struct]) -> None:
    """In the struct itself, and in all that it carries."""
    made: Any = example(root)
    plain = msgspec.msgpack.decode(encode_msgpack(made))
    later = with_more(plain, inspect.type_info(root))
    assert later != plain
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=root, dec_hook=dec_hook) == made


def with_more(plain: Any, type_: inspect.Type) -> Any:
    """Every struct has another field, after those that it has where it is a list."""
    match type_, plain:
        case inspect.StructType(array_like=True, fields=fields), list():
            known = [with_more(each, field.type) for each, field in zip(plain, fields, strict=True)]
            return [*known, "added later"]
        case inspect.StructType(fields=fields), dict():
            types = {field.encode_name: field.type for field in fields}
            more = {name: with_more(value, types[name]) if name in types else value for name, value in plain.items()}
            return more | {"addedLater": [1, {"a": None}]}
        case inspect.UnionType(types=types), _:
            return with_more(plain, _member(types, plain))
        case ((inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item)), list()):
            return [with_more(each, item) for each in plain]
        case inspect.DictType(value_type=value), dict():
            return {key: with_more(each, value) for key, each in plain.items()}
    return plain


def _member(types: tuple[inspect.Type, ...], plain: Any) -> inspect.Type:
    """Of a union, the one that this is of: structs have tags where there are several."""
    of_structs = [each for each in types if isinstance(each, inspect.StructType)]
    if len(of_structs) > 1:
        return next(each for each in of_structs if each.tag == plain.get(each.tag_field))
    return next((each for each in types if not isinstance(each, inspect.NoneType)), types[0])


# The test tests


def changed(**fields: Any) -> Wire:
    """A release that differs in Take."""
    wire = copy.deepcopy(BEFORE)
    for name, field in fields.items():
        if field is None:
            del wire.structs["Take"]["fields"][name]
        else:
            wire.structs["Take"]["fields"][name] = field
    return wire


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (changed(more={"type": "int"}), "Take.more is new and required: give it a default"),
        (changed(more={"type": "int", "default": 0}), ""),
        (changed(most=None), "Take.most is gone: keep it for one more release"),
        (changed(most={"type": "str"}), "Take.most was int and is str: make a new field"),
        (changed(most={"type": "int", "default": 1}), "Take.most has got a default"),
        (changed(most={"type": "int | none"}), "Take.most takes none as well: older readers refuse"),
    ],
)
def test_a_change_is_judged(now: Wire, told: str) -> None:
    problems = list(misunderstandings(BEFORE, now))
    assert [problem[: len(told)] for problem in problems] == ([told] if told else [])


def test_other_changes_are_judged() -> None:
    now = copy.deepcopy(BEFORE)
    now.structs["Take"]["tag"] = "type: grab"
    now.structs["Batch"]["fields"]["seq"]["default"] = 1
    del now.structs["Gang"]
    now.messages.remove("Relist")
    now.enums["Verdict"] = [*now.enums["Verdict"][1:], "odd"]
    now.structs["PodState"]["fields"] = dict(reversed(now.structs["PodState"]["fields"].items()))
    now.structs["Watched"]["fields"]["changes"]["type"] = now.structs["Watched"]["fields"]["changes"]["type"].replace(
        "list[", "list[Another | "
    )
    problems = "\n".join(misunderstandings(BEFORE, now, frozenset({"Watched.changes.Another"})))
    assert len(problems.splitlines()) == 7
    for told in (
        "Take has another tag",
        "Batch.seq has another default",
        "Gang is gone",
        "message Relist is gone",
        "Verdict has no 'decided' any more",
        "Verdict has a new value 'odd'",
        "PodState is a list, and its fields have moved",
    ):
        assert told in problems
    assert "Watched.changes takes Another as well" in "\n".join(misunderstandings(BEFORE, now))
