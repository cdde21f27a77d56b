"""The state of one evaluation: what it has cost, and the values of variables."""

from collections.abc import Callable

from shared.cel.values import Accumulated, CelMap, CostExceededError, Value


class Scope:
    """The variables that a part of an expression sees; this one has those of the whole expression."""

    __slots__ = ("meter", "variables")

    def __init__(self, meter: "Meter", variables: dict[str, Value]) -> None:
        self.meter = meter
        self.variables = variables

    def resolve(self, name: str) -> Value:
        return self.variables[name]


class Meter:
    """Adds up costs, and stops the evaluation at a limit."""

    __slots__ = ("_limit", "cost")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self._limit = limit

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self._limit:
            raise CostExceededError


Step = Callable[[Scope], Value]
"""A compiled part of an expression."""


class FoldScope(Scope):
    """The variables of a comprehension: the accumulator, set when first used, and those of the iteration."""

    __slots__ = ("_accumulator", "_first", "_initial", "_initialized", "_parent", "_second", "_value", "_values")

    def __init__(self, parent: Scope, accumulator: str, initial: Step, first: str, second: str) -> None:
        super().__init__(parent.meter, {})
        self._parent = parent
        self._accumulator = accumulator
        self._initial = initial
        self._first = first
        self._second = second
        self._initialized = False
        self._value: Value = None
        self._values: tuple[Value, Value] | None = None

    def iterate(self, first: Value, second: Value = None) -> None:
        self._values = (first, second)

    def finish(self) -> None:
        """Forget the iteration: the result does not see its variables."""
        self._values = None

    def accumulate(self, value: Value) -> None:
        self._value = value
        self._initialized = True

    def resolve(self, name: str) -> Value:
        if name == self._accumulator:
            if not self._initialized:
                self._initialized = True
                self._value = _growing(self._initial(self._parent))
            return self._value
        if self._values is not None:
            if name == self._first:
                return self._values[0]
            if name == self._second:
                return self._values[1]
        return self._parent.resolve(name)


def _growing(value: Value) -> Value:
    """An accumulator of its own, if it starts as an empty list or map."""
    if isinstance(value, list) and not value:
        return Accumulated()
    if isinstance(value, CelMap) and not len(value):
        return CelMap()
    return value
