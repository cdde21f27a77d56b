"""docs/limits.md, made from the constants in the code: python -m tests.limits > docs/limits.md."""

import ast
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
INTRODUCTION = """# Limits and time-outs

Made from the constants in the code, by `python -m tests.limits > docs/limits.md`; a test compares the two. A number is
listed if the string below it says what it limits. One that depends on others is computed from them, as its row shows.
Values that can be set are in [running.md](running.md) and [configuration.md](configuration.md).

To add a limit: define it at the top of the module that uses it, or in `shared/messages/limits.py` if several services
must agree on it, with a string below it that names the unit and the reason; then make this page again.
"""
HEAD = "| module | name | value | what |\n|---|---|---|---|"
SHARED = ("bus", "config", "extenders", "http", "kube", "messages", "runtime", "store", "telemetry", "watch.py")
"""Numbers of the other packages in shared/ are part of scheduling decisions, not limits."""


class Limit(NamedTuple):
    """`value`: the number; for a derived one also what it is computed from."""

    name: str
    value: str
    what: str


def page() -> str:
    packages = sorted(path for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists())
    return "\n".join(
        [INTRODUCTION, *filter(None, map(table, [*packages, *(ROOT / "shared" / name for name in SHARED)]))]
    )


def table(package: Path) -> str:
    """The numbers of a package, module by module; empty if there are none."""
    modules = sorted(package.rglob("*.py")) if package.is_dir() else [package]
    rows = [
        f"| {module.stem} | `{name}` | {value} | {what} |"
        for module in modules
        for name, value, what in sorted(limits(module))
    ]
    return "\n".join((f"## {package.relative_to(ROOT).with_suffix('')}\n", HEAD, *rows, "")) if rows else ""


def limits(path: Path) -> Iterator[Limit]:
    """The positive numbers at the top level of a module that have a docstring."""
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for assigned, below in pairwise(ast.parse(path.read_text()).body):
        match assigned, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=given)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as given),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                number = getattr(module, name)
                if type(number) in (int, float) and number > 0:
                    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
                    if any(isinstance(part, ast.Name) for part in ast.walk(given)):
                        shown = f"`{ast.unparse(given)}` = {shown}"
                    yield Limit(name, *(" ".join(part.split()).replace("|", "\\|") for part in (shown, text)))


if __name__ == "__main__":
    print(page(), end="")
