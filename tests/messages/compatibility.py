"""Whether two releases next to each other understand each other: what has changed that they do not."""

from collections.abc import Iterator

from tests.messages.description import Struct, Wire

KEEP = "keep it for one more release, and remove it in the one after"
READ_FIRST = (
    "older readers refuse the whole message: let this release read it and the next one send it, then name it in"
)


def misunderstandings(before: Wire, now: Wire, only_read: frozenset[str] = frozenset()) -> Iterator[str]:
    """Each a sentence that says what to do. `only_read`: values and kinds that this release reads and never sends."""
    for name in before.messages:
        if name not in now.messages:
            yield f"message {name} is gone: {KEEP}"
    for name, struct in before.structs.items():
        if name not in now.structs:
            yield f"{name} is gone: {KEEP}"
        else:
            yield from _of_struct(name, struct, now.structs[name], only_read)
    for name, values in before.enums.items():
        told = now.enums.get(name, [])
        for value in values:
            if value not in told:
                yield f"{name} has no {value!r} any more: {KEEP}"
        for value in told:
            if value not in values and f"{name}.{value}" not in only_read:
                yield f"{name} has a new value {value!r}: {READ_FIRST} ONLY_READ as '{name}.{value}'"


def _of_struct(name: str, before: Struct, now: Struct, only_read: frozenset[str]) -> Iterator[str]:
    if before["tag"] != now["tag"]:
        yield f"{name} has another tag: make a new message under the new one, and keep this one for one more release"
    as_list = now.get("array_like", False)
    if before.get("array_like", False) != as_list:
        yield f"{name} is encoded otherwise, as a list or as a map: make a new struct"
    for field, told in now["fields"].items():
        if field not in before["fields"]:
            if "default" not in told:
                yield f"{name}.{field} is new and required: give it a default, for the last release does not send it"
        else:
            yield from _of_field(f"{name}.{field}", before["fields"][field], told, only_read)
    for field in before["fields"]:
        if field not in now["fields"]:
            yield f"{name}.{field} is gone: {KEEP}"
    if as_list and list(now["fields"])[: len(before["fields"])] != list(before["fields"]):
        yield f"{name} is a list, and its fields have moved: new ones come last"


def _of_field(name: str, before: Struct, now: Struct, only_read: frozenset[str]) -> Iterator[str]:
    is_passed_on = now["type"] == "raw"  # the same bytes, decoded later or elsewhere
    if before["type"] != now["type"] and not is_passed_on:
        added = _added(str(before["type"]), str(now["type"]))
        if str(before["type"]).startswith("literal ") and now["type"] == "str":
            if name not in only_read:
                yield f"{name} takes any text now: {READ_FIRST} ONLY_READ as '{name}'"
        elif not added:
            yield f"{name} was {before['type']} and is {now['type']}: make a new field, and keep this one"
        elif not all(f"{name}.{each}" in only_read for each in added):
            listed = ", ".join(f"'{name}.{each}'" for each in sorted(added))
            yield f"{name} takes {', '.join(sorted(added))} as well: {READ_FIRST} ONLY_READ as {listed}"
    if "default" in before and "default" not in now:
        yield f"{name} has become required: give it its default back, for the last release leaves it out"
    elif "default" in now and "default" not in before:
        yield f"{name} has got a default, and is left out where it has it: the last release requires it, so do without"
    elif before.get("default") != now.get("default"):
        yield f"{name} has another default: what is left out would mean one thing here and another there, so keep it"


def _added(before: str, now: str) -> set[str]:
    """What a type takes beyond what it took; nothing if it is another type."""
    opening, _, _ = now.partition("[") if now.startswith("list[") else ("", "", "")
    if opening and before.startswith("list["):
        before, now = before[5:-1], now[5:-1]
    old, new = set(before.split(" | ")), set(now.split(" | "))
    return new - old if old < new else set()
