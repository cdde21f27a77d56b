"""What the decisions of a round have written, and whether a proposal read something of it.

A proposal reads the node that it is for. Its evaluation has seen the earlier proposals of its own class, because a
ladder is climbed in order, and nothing of any other decision of the round. So a proposal is stale if a decision of
another class has written its node.
"""


class Written:
    def __init__(self) -> None:
        self._by: dict[str, str] = {}

    def add(self, class_id: str, node: str) -> None:
        """Only what is not stale is decided, so a node has one class a round."""
        self._by[node] = class_id

    def __bool__(self) -> bool:
        return bool(self._by)

    def is_stale(self, class_id: str, node: str) -> bool:
        return self._by.get(node, class_id) != class_id
