"""docs/messages.md, made from the code: python -m tests.message_table > docs/messages.md."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from shared.messages.codec import Message

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("services", "shared", "testing/auditor", "tools")
INTRODUCTION = """# Messages

Which modules make each message, and which functions handle it. What the messages are for, on which subjects they travel
and who repeats them, is in [pipeline.md](pipeline.md#subjects).

Made by `python -m tests.message_table > docs/messages.md`; a test compares the two.
"""
HEAD = "| message | made in | handled in |\n|---|---|---|"
HANDLERS = ("on_", "take", "handle", "withdraw", "seen")
"""How the names of functions begin that handle a message."""


class Uses:
    """Of one message. `readers`: modules that import it and do not make it."""

    def __init__(self) -> None:
        self.makers: set[str] = set()
        self.handlers: set[str] = set()
        self.readers: set[str] = set()

    def row(self, name: str) -> str:
        makers = {_service(module) for module in self.makers}
        elsewhere = {each for each in self.handlers if _service(each) not in makers or not each.startswith("services")}
        handlers = elsewhere or self.handlers or self.readers - self.makers or self.makers
        return f"| {name} | {_listed(self.makers)} | {_listed(handlers)} |"


def page() -> str:
    messages = {message.__name__: Uses() for message in get_args(Message)}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = str(path.relative_to(ROOT))
            if not module.startswith("shared/messages/"):
                _read(module, ast.parse(path.read_text()), messages)
    lines = [INTRODUCTION]
    for module in sorted({message.__module__ for message in get_args(Message)}):
        lines += [f"## {module.rpartition('.')[2]}", "", HEAD]
        lines += [messages[each.__name__].row(each.__name__) for each in get_args(Message) if each.__module__ == module]
        lines.append("")
    return "\n".join(lines)


def _read(module: str, tree: ast.Module, messages: dict[str, Uses]) -> None:
    known = {name: messages[told] for name, told in _imported(tree) if told in messages}
    for uses in known.values():
        uses.readers.add(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            known[node.func.id].makers.add(module)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.lstrip("_").startswith(HANDLERS):
            for name in _annotations(node):
                if name in known:
                    known[name].handlers.add(f"{module}: {node.name}")


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names under which a module knows what it imports from `shared.messages`, and their own names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared.messages."):
            yield from ((each.asname or each.name, each.name) for each in node.names)


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names in the annotations of its parameters."""
    for argument in function.args.args:
        for part in ast.walk(argument.annotation) if argument.annotation is not None else ():
            if isinstance(part, ast.Name):
                yield part.id


def _service(place: str) -> str:
    return "/".join(place.split("/")[:2])


def _listed(places: set[str]) -> str:
    return ", ".join(f"`{place}`" for place in sorted(places))


if __name__ == "__main__":
    print(page(), end="")
