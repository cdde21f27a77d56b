"""The part of Lua in which Redis scripts are written here: the simulated Redis runs the same text as the real one.

Strings are bytes, nil is None, arrays are Tables. What is not known is a SyntaxError, never passed over.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from testing.simulation.lua_values import (
    BINARY,
    Table,
    find,
    from_redis,
    ipairs,
    length_of,
    pairs,
    sub,
    text_of,
    to_redis,
    tonumber,
    truthy,
    unpack,
)

Env = dict[str, Any]
Eval = Callable[[Env], Any]
Call = Callable[[list[bytes]], Any]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)|(?P<number>\d+(?:\.\d+)?)|(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\.\.|==|~=|<=|>=|[-+*/%#<>=(){}\[\],.;:])"""
)
_KEYWORD = re.compile(
    r"and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while"
)


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Break(Exception):
    pass


class Program:
    """A script. `run` does what EVAL does."""

    def __init__(self, text: str) -> None:
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._tokens = _tokens(text)
        self._at = 0
        self._body = self._block()
        if self._at < len(self._tokens):
            raise SyntaxError(f"Lua: {self._tokens[self._at]!r} is not expected")

    def run(self, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call) -> Any:
        def redis_call(*words: Any) -> Any:
            return from_redis(call([text_of(word) for word in words]))

        env: Env = {
            "KEYS": Table(keys),
            "ARGV": Table(arguments),
            "redis": Table(),
            "math": Table(),
            "table": Table(),
            "string": Table(),
            "tonumber": tonumber,
            "tostring": text_of,
            "unpack": unpack,
            "ipairs": ipairs,
            "pairs": pairs,
        }
        env["redis"].items |= {b"call": redis_call, b"status_reply": lambda text: text}
        env["math"].items |= {b"min": min, b"max": max, b"floor": lambda value: int(value // 1)}
        env["table"].items |= {b"insert": lambda table, value: table.items.update({table.length() + 1: value})}
        env["string"].items |= {b"sub": sub, b"find": find}
        try:
            self._run(self._body, env)
        except _Return as returned:
            return to_redis(returned.value)
        return None

    # Statements

    def _run(self, block: list[Eval], env: Env) -> None:
        for statement in block:
            statement(env)

    def _block(self) -> list[Eval]:
        block: list[Eval] = []
        while self._at < len(self._tokens) and self._peek() not in ("end", "else", "elseif", "until"):
            if self._accept(";"):
                continue
            block.append(self._statement())
        return block

    def _statement(self) -> Eval:
        word = self._peek()
        known: dict[str, Callable[[], Eval]] = {
            "local": self._local,
            "if": self._if,
            "for": self._for,
            "while": self._while,
            "return": self._return,
            "break": self._break,
        }
        if word in known:
            self._take(word)
            return known[word]()
        return self._call_or_assign()

    def _local(self) -> Eval:
        if self._accept("function"):
            name = self._name()
            made = self._function()
            return lambda env: env.__setitem__(name, made(env))
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        values = self._list() if self._accept("=") else []

        def assign(env: Env) -> None:
            found = [*_values(values, env), *[None] * len(names)]
            env.update(zip(names, found, strict=False))

        return assign

    def _if(self) -> Eval:
        branches: list[tuple[Eval, list[Eval]]] = []
        otherwise: list[Eval] = []
        condition = self._expression()
        self._take("then")
        branches.append((condition, self._block()))
        while self._accept("elseif"):
            condition = self._expression()
            self._take("then")
            branches.append((condition, self._block()))
        if self._accept("else"):
            otherwise = self._block()
        self._take("end")

        def choose(env: Env) -> None:
            for test, block in branches:
                if truthy(test(env)):
                    self._run(block, env)
                    return
            self._run(otherwise, env)

        return choose

    def _for(self) -> Eval:
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        counts = self._accept("=")
        if not counts:
            self._take("in")
        bounds = self._list()
        self._take("do")
        block = self._block()
        self._take("end")

        def steps(env: Env) -> Any:
            if not counts:
                return bounds[0](env)
            first, last, *more = (tonumber(bound(env)) for bound in bounds)
            step = more[0] if more else 1
            return ((number,) for number in range(first, last + (1 if step > 0 else -1), step))

        def loop(env: Env) -> None:
            try:
                for values in steps(env):
                    env.update(zip(names, values, strict=False))
                    self._run(block, env)
            except _Break:
                pass

        return loop

    def _while(self) -> Eval:
        condition = self._expression()
        self._take("do")
        block = self._block()
        self._take("end")

        def loop(env: Env) -> None:
            try:
                while truthy(condition(env)):
                    self._run(block, env)
            except _Break:
                pass

        return loop

    def _return(self) -> Eval:
        ends = self._at >= len(self._tokens) or self._peek() in ("end", "else", "elseif")
        value = (lambda env: None) if ends else self._expression()

        def give(env: Env) -> None:
            raise _Return(value(env))

        return give

    def _break(self) -> Eval:
        def leave(env: Env) -> None:
            raise _Break

        return leave

    def _call_or_assign(self) -> Eval:
        targets = [self._suffixed()]
        while self._accept(","):
            targets.append(self._suffixed())
        if not self._accept("="):
            if self._tokens[self._at - 1] != ")":
                raise SyntaxError(f"Lua: {self._tokens[self._at - 1]!r} is no statement")
            return targets[0][0]
        values = self._list()

        def assign(env: Env) -> None:
            found = [*_values(values, env), *[None] * len(targets)]
            for (_, put), value in zip(targets, found, strict=False):
                put(env, value)

        return assign

    # Expressions

    def _list(self) -> list[Eval]:
        found = [self._expression()]
        while self._accept(","):
            found.append(self._expression())
        return found

    def _expression(self) -> Eval:
        left = self._and()
        while self._accept("or"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Eval:
        left = self._binary(0)
        while self._accept("and"):
            left = _both(left, self._binary(0))
        return left

    def _binary(self, level: int) -> Eval:
        if level == len(BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while (sign := self._peek()) in BINARY[level]:
            self._take(sign)
            left = _combined(BINARY[level][sign], left, self._binary(level + 1))
        return left

    def _unary(self) -> Eval:
        if self._accept("not"):
            value = self._unary()
            return lambda env: not truthy(value(env))
        if self._accept("#"):
            value = self._unary()
            return lambda env: length_of(value(env))
        if self._accept("-"):
            value = self._unary()
            return lambda env: -tonumber(value(env))
        return self._simple()

    def _simple(self) -> Eval:
        word = self._peek()
        constants = {"nil": None, "true": True, "false": False}
        if word in constants:
            self._take(word)
            return lambda env: constants[word]
        if word[0] in "'\"":
            self._take(word)
            text = word[1:-1].encode().decode("unicode_escape").encode("latin-1")
            return lambda env: text
        if word[0].isdigit():
            self._take(word)
            number = tonumber(word)
            return lambda env: number
        if word == "{":
            return self._table()
        if self._accept("function"):
            return self._function()
        return self._suffixed()[0]

    def _table(self) -> Eval:
        self._take("{")
        values: list[Eval] = []
        while not self._accept("}"):
            values.append(self._expression())
            self._accept(",")
        return lambda env: Table(_values(values, env))

    def _function(self) -> Eval:
        self._take("(")
        names: list[str] = []
        while not self._accept(")"):
            names.append(self._name())
            self._accept(",")
        body = self._block()
        self._take("end")

        def make(env: Env) -> Callable[..., Any]:
            def function(*arguments: Any) -> Any:
                within = env | dict(zip(names, arguments, strict=False))
                try:
                    self._run(body, within)
                except _Return as returned:
                    return returned.value
                return None

            return function

        return make

    def _suffixed(self) -> tuple[Eval, Callable[[Env, Any], None]]:
        """An expression that begins with a name, and how it is assigned to."""
        if self._accept("("):
            value = self._expression()
            self._take(")")
        else:
            value = _variable(self._name())
        name = self._tokens[self._at - 1]
        put: Callable[[Env, Any], None] = lambda env, new: env.__setitem__(name, new)  # noqa: E731
        while self._at < len(self._tokens) and self._peek() in (".", "[", "("):
            if self._accept("("):
                arguments = [] if self._peek() == ")" else self._list()
                self._take(")")
                value = _called(value, arguments)
                continue
            if self._accept("."):
                field = self._name().encode()
                key: Eval = _constant(field)
            else:
                self._take("[")
                key = self._expression()
                self._take("]")
            value, put = _indexed(value, key)
        return value, put

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _accept(self, word: str) -> bool:
        found = self._peek() == word
        self._at += found
        return found

    def _take(self, word: str) -> None:
        if not self._accept(word):
            raise SyntaxError(f"Lua: expected {word!r}, found {self._peek()!r}")

    def _name(self) -> str:
        word = self._peek()
        if not re.fullmatch(r"[A-Za-z_]\w*", word) or _KEYWORD.fullmatch(word):
            raise SyntaxError(f"Lua: expected a name, found {word!r}")
        self._at += 1
        return word


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SyntaxError(f"Lua: {text[at : at + 20]!r}")
        if match.lastgroup != "space":
            found.append(match.group())
        at = match.end()
    return found


def _values(evals: Sequence[Eval], env: Env) -> list[Any]:
    """Of several expressions; a call at the end may give several values."""
    found = [each(env) for each in evals]
    single = [each[0] if isinstance(each, tuple) and each else each for each in found[:-1]]
    last = found[-1:]
    return [*single, *(last[0] if last and isinstance(last[0], tuple) else last)]


def _either(left: Eval, right: Eval) -> Eval:
    def value(env: Env) -> Any:
        found = left(env)
        return found if truthy(found) else right(env)

    return value


def _both(left: Eval, right: Eval) -> Eval:
    def value(env: Env) -> Any:
        found = left(env)
        return right(env) if truthy(found) else found

    return value


def _combined(work: Callable[[Any, Any], Any], left: Eval, right: Eval) -> Eval:
    return lambda env: work(left(env), right(env))


def _constant(value: Any) -> Eval:
    return lambda env: value


def _variable(name: str) -> Eval:
    return lambda env: env.get(name)


def _indexed(table: Eval, key: Eval) -> tuple[Eval, Callable[[Env, Any], None]]:
    def put(env: Env, value: Any) -> None:
        table(env).items[key(env)] = value

    return (lambda env: table(env).items.get(key(env))), put


def _called(function: Eval, arguments: Sequence[Eval]) -> Eval:
    return lambda env: function(env)(*_values(arguments, env))
