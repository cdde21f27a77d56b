"""CEL, the language in which DeviceClasses and ResourceClaims select devices, as Kubernetes v1.36 understands it.

`compile_expression` turns an expression into a program, which is evaluated once for each distinct device. Results,
errors with their texts, and costs are those of kube-scheduler. Nothing here reads files or clocks, and no expression,
however hostile, raises anything but CompileError or takes more time than its size and the cost limit allow.
"""

from shared.cel.errors import CompileError
from shared.cel.program import SelectorDevice, SelectorProgram, SelectorResult, compile_expression

__all__ = ["CompileError", "SelectorDevice", "SelectorProgram", "SelectorResult", "compile_expression"]
