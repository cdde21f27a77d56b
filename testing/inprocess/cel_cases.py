"""Golden cases of CEL: an expression and a device, and the result, error and cost that kube-scheduler v1.36 found."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.model.codec import convert
from shared.model.devices import Device
from testing.inprocess.cases import Difference

CelCase = Mapping[str, Any]
COMPARED = ("result", "error", "at", "estimate")
MAX_SHOWN = 120
"""Characters of an expression with which a difference names its case."""


def is_cel_case(case: object) -> bool:
    match case:
        case {"group": str(), "expression": str(), "device": {"driver": str()}}:
            return True
    return False


def cel_differences(case: CelCase) -> Iterator[Difference]:
    """Compares what the case has; the cost is absent where it depends on the order of a map."""
    got = _got(case)
    compared = [*COMPARED, *(name for name in ("cost", "newError") if name in case)]
    for what in compared:
        expected, found = case.get(what), got.get(what)
        if expected != found:
            name = f"{case['group']}: {case['expression'][:MAX_SHOWN]}"
            yield Difference(name, "-", what, expected, found)


def _got(case: CelCase) -> dict[str, Any]:
    from shared.cel import CompileError, SelectorDevice, compile_expression  # slow to import

    got: dict[str, Any] = {}
    expression: str = case["expression"]
    try:
        compile_expression(expression, new_object=True)
    except CompileError as error:
        got["newError"] = str(error)
    try:
        program = compile_expression(expression)
    except CompileError as error:
        return got | {"error": str(error), "at": "compile"}
    found = program.evaluate(SelectorDevice.of(case["device"]["driver"], convert(Device, case["device"])))
    got |= {"estimate": program.estimate, "cost": found.cost}
    return got | ({"result": found.matches} if found.error is None else {"error": found.error, "at": "run"})
