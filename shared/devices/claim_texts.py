"""Texts about a class of pods, each of which has claims of its own: `{claim 0}` until an outcome names the claim."""

import re
from collections.abc import Sequence

_TOKEN = re.compile(r"\{claim (\d+)\}")


def without_names(text: str, keys: Sequence[str]) -> str:
    """The text with a token for each claim, by `namespace/name`, of the pod that represents the class."""
    if not any(key in text for key in keys):
        return text
    numbers = {key: number for number, key in reversed(list(enumerate(keys)))}
    names = "|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
    return re.sub(rf"(?<![\w./-])(?:{names})(?![\w/-]|\.\w)", lambda found: f"{{claim {numbers[found[0]]}}}", text)


def with_names(text: str, keys: Sequence[str]) -> str:
    """The text as one pod of the class gets it."""
    if "{claim " not in text:
        return text
    return _TOKEN.sub(lambda found: keys[int(found[1])] if int(found[1]) < len(keys) else found[0], text)
