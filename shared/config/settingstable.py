"""All settings as a table in Markdown. What each means is told by the docstring of its field."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise

from shared.config import settings
from shared.config.source import Source
from shared.config.sources import HTTP_FLAG, SOURCES

HEAD = "| setting | variable | flag | default | what |"


def settings_table() -> str:
    """One row a setting, in the order of `SOURCES`."""
    told = dict(_field_docs())
    return "\n".join((HEAD, "|---|---|---|---|---|", *(_row(source, told) for source in SOURCES)))


def _row(source: Source, told: dict[str, str]) -> str:
    flag = HTTP_FLAG if source.field in ("http_host", "http_port") else source.flag
    default = "none" if source.default in (None, "") else f"`{source.default}`"
    what = told.get(source.field) or source.help or "see below"
    return f"| `{source.field}` | `{source.variable}` | {f'`{flag}`' if flag else ''} | {default} | {what} |"


def _field_docs() -> Iterator[tuple[str, str]]:
    """Each field of the classes of settings with what stands below it."""
    for owner in ast.parse(inspect.getsource(settings)).body:
        if not isinstance(owner, ast.ClassDef):
            continue
        for field, below in pairwise(owner.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                yield field.target.id, " ".join(str(ast.literal_eval(below.value)).split())
