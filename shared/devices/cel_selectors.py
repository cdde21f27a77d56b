"""Evaluates CEL selectors for `Selectors`; by itself, because importing CEL takes a while."""

from functools import lru_cache

from shared.cel import CompileError, SelectorDevice, SelectorProgram, compile_expression
from shared.devices.offers import OfferedDevice

MAX_PROGRAMS = 1024
MAX_DEVICES = 256
"""Devices prepared for selectors; those evaluated by several selectors in a row are prepared once."""


def evaluate(expression: str, device: OfferedDevice) -> bool | str:
    """Whether the device matches, or the error in kube-scheduler's words."""
    program = _program(expression)
    if isinstance(program, str):
        return program
    try:
        prepared = _prepared(device)
    except ValueError as malformed:
        return f"CEL runtime error: {malformed}"
    result = program.evaluate(prepared)
    return result.matches if result.error is None else f"CEL runtime error: {result.error}"


@lru_cache(maxsize=MAX_PROGRAMS)
def _program(expression: str) -> SelectorProgram | str:
    try:
        return compile_expression(expression)
    except CompileError as error:
        return f"CEL compile error: {error}"


@lru_cache(maxsize=MAX_DEVICES)
def _prepared(device: OfferedDevice) -> SelectorDevice:
    return SelectorDevice.of(device.id.driver, device.device)
