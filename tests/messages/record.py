"""`python -m tests.messages.record`: writes down what this release sends and stores. Run it once it is released."""

import base64
from importlib.metadata import version

import msgspec

from shared.model.objects import encode_msgpack
from shared.store.schema import SCHEMA
from testing.simulation.releases import RECORDS
from tests.messages.description import MESSAGES, ROOTS, Wire, enums, name_of, structs
from tests.messages.examples import example


def today() -> Wire:
    return Wire(
        release=version("flotilla"),
        schema=SCHEMA,
        structs=structs(),
        enums=enums(),
        messages=sorted(message.__name__ for message in MESSAGES),
        examples={name_of(root): base64.b64encode(encode_msgpack(example(root))).decode() for root in ROOTS},
    )


def recorded() -> Wire:
    """The last release, of which there is one file."""
    (path,) = RECORDS.glob("wire-*.json")
    return msgspec.json.decode(path.read_bytes(), type=Wire)


def main() -> None:
    wire = today()
    for old in RECORDS.glob("wire-*.json"):
        old.unlink()
    path = RECORDS / f"wire-{wire.release}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(wire), indent=1) + b"\n")
    print(f"{path.name}: {len(wire.structs)} structs, {len(wire.messages)} of them messages")


if __name__ == "__main__":
    main()
