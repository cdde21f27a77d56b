"""Errors about expressions, with the place in the source, worded and laid out as cel-go does."""

from bisect import bisect_right
from itertools import accumulate

from shared.errors import FlotillaError

MAX_NESTING = 250
"""Nested expressions, and operators or selections in a row."""
MAX_ERRORS = 100
"""Errors that are shown of one expression."""
LONGEST_SNIPPET = 16384
"""Bytes of a source line that is still shown with an error."""
WIDE_DOT, WIDE_MARK = "\uff0e", "\uff3e"
NOWHERE = -1
"""Line and column of an error about the whole expression."""
MISSING_PART = -1
"""The offset of what a wrong expression lacks: before the first character."""


class CompileError(FlotillaError):
    """An expression that cannot be compiled: wrong syntax or types, or a conversion or regex that always fails."""


class LimitError(Exception):
    """An expression that nests too much, or that takes too much to recover from its errors."""


class ExpressionSource:
    """The text of an expression, and the errors found in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))[:-1]
        self._errors: list[tuple[int, int, str]] = []

    def report(self, offset: int | None, message: str) -> None:
        """Add an error, with its line from 1 and column from 0; None if it is about the whole expression."""
        if offset is None:
            self._errors.append((NOWHERE, NOWHERE, message))
            return
        line = max(bisect_right(self._starts, offset), 1)
        self._errors.append((line, offset - self._starts[line - 1], message))

    @property
    def error_count(self) -> int:
        return len(self._errors)

    def forget_errors(self, known: int) -> None:
        """Forget the errors behind the first ones."""
        del self._errors[known:]

    def raise_errors(self) -> None:
        """Raise CompileError if any error was reported."""
        if not self._errors:
            return
        shown = sorted(self._errors[:MAX_ERRORS], key=lambda error: error[:2])
        texts = [self._show(*error) for error in shown]
        if len(self._errors) > MAX_ERRORS:
            texts.append(f"{len(self._errors) - MAX_ERRORS} more errors were truncated")
        raise CompileError("compilation failed: " + "\n".join(texts))

    def _show(self, line: int, column: int, message: str) -> str:
        if not self.text:
            return f"ERROR: <input>:1:0: {message}"
        head = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if line < 0:
            return head
        snippet = self._lines[line - 1].replace("\t", " ")
        if len(snippet.encode(errors="surrogatepass")) > LONGEST_SNIPPET:
            return head
        # Wide marks stand below characters that are not ASCII.
        start = max(column, 0)
        marks = "".join("." if character.isascii() else WIDE_DOT for character in snippet[:start])
        pointed_at = snippet[start : start + 1]
        return f"{head}\n | {snippet}\n | {marks}{'^' if pointed_at.isascii() else WIDE_MARK}"
