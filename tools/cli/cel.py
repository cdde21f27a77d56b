"""flotilla cel: try a device selector, as DeviceClasses and ResourceClaims have them."""

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shared.errors import UserError
from tools.cli.arguments import read_input

if TYPE_CHECKING:
    from shared.cel import SelectorProgram

NO_MATCH = 1

DESCRIPTION = """\
Compiles an expression and evaluates it for devices: prints the result, what it costs, and the most that it may
cost, or the error, as kube-scheduler would.
"""
EXAMPLES = """\
FILE has one device as a ResourceSlice lists it, with its driver beside it, or a whole ResourceSlice or a list of them:

  driver: gpu.example.com
  attributes:
    model: {string: big}
  capacity:
    memory: {value: 40Gi}

exit code 0: a device matches (without a file: the expression is correct); 1: none does, or an error; 2: unreadable file
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("expression", metavar="EXPRESSION", help="such as 'device.driver == \"gpu.example.com\"'")
    command.add_argument(
        "--device", metavar="FILE", help="a device or a ResourceSlice in YAML or JSON; - for standard input"
    )


def run(options: argparse.Namespace) -> int:
    from shared.cel import CompileError, compile_expression

    devices = [] if options.device is None else list(_devices(options.device))
    try:
        program = compile_expression(options.expression)
    except CompileError as error:
        print(error)
        return NO_MATCH
    matched = [_report(program, *device) for device in devices]
    print(f"estimate: {'unbounded' if program.estimate is None else program.estimate}{_refusal(program)}")
    return 0 if any(matched) or not devices else NO_MATCH


def _report(program: "SelectorProgram", name: str, driver: str, device: Mapping[str, Any]) -> bool:
    """Print what the program finds about a device, and return whether it matches."""
    from shared.cel import SelectorDevice
    from shared.model.codec import convert
    from shared.model.devices import Device

    try:
        prepared = SelectorDevice.of(driver, convert(Device, device))
    except ValueError as cause:
        raise UserError(f"device {name}: {cause}".replace(" :", ":")) from None
    found = program.evaluate(prepared)
    outcome = f"error: {found.error}" if found.error else str(found.matches).lower()
    print(f"{name}: {outcome} (cost {found.cost})" if name else f"{outcome}\ncost: {found.cost}")
    return found.matches


def _refusal(program: "SelectorProgram") -> str:
    from shared.cel.costs import LIMIT

    if program.estimate is None or program.estimate > LIMIT:
        return f" (the API server accepts at most {LIMIT} in new objects)"
    return ""


def _devices(file: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, driver and content of each device; a device on its own has no name."""
    document = _document(file)
    slices = document.get("items", [document])
    for each in slices if isinstance(slices, list) else []:
        spec = each.get("spec") if isinstance(each, dict) else None
        if isinstance(spec, dict):
            driver, pool = str(spec.get("driver")), spec.get("pool") or {}
            for device in spec.get("devices") or []:
                yield f"{driver}/{pool.get('name', '')}/{device.get('name', '')}", driver, device
        elif isinstance(each, dict) and isinstance(each.get("driver"), str):
            yield "", each["driver"], each
        else:
            raise UserError(f"{file}: is neither a device with a driver nor a ResourceSlice")


def _document(file: str) -> dict[str, Any]:
    from shared.config.kubernetes_yaml import YamlFault, parse_yaml

    try:
        document, _ = parse_yaml(read_input(file))
    except YamlFault as fault:
        raise UserError(f"{file}: {fault}") from None
    if not isinstance(document, dict):
        raise UserError(f"{file}: is neither a device with a driver nor a ResourceSlice")
    return document
