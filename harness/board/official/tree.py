"""The parser's trees of operators, where spans of one thread cross.

The plugin drops a span that begins inside another and ends after it, with all that it calls; files of old torch, whose
times are whole microseconds, have hundreds. Here it closes what it crosses, as in torch's own table.
"""

from __future__ import annotations

import sys
from typing import Any


def build(builder: Any, nodes: list[Any], runtimes: list[Any], tid: int, unclaimed: list[Any]) -> Any:
    """The root of one thread's tree, in place of `OpTreeBuilder._build_tree_internal`.

    Args:
        nodes: Spans by start, the longer first.
        runtimes: Calls of the runtime that belong to no operator.
        unclaimed: Device events without a launch.
    """
    from torch_tb_profiler.profiler.node import OperatorNode, RuntimeNode
    from torch_tb_profiler.profiler.trace import EventTypes

    calls = list(runtimes)
    if unclaimed:
        call = RuntimeNode(
            name="dummy", start_time=None, end_time=None, type=EventTypes.RUNTIME, tid=0, device_nodes=unclaimed
        )
        call.fill_stats()
        calls.append(call)
    root = OperatorNode(
        name="CallTreeRoot",
        start_time=-sys.maxsize,
        end_time=sys.maxsize,
        type=EventTypes.PYTHON,
        tid=tid,
        runtimes=calls,
    )
    open_nodes = [root]
    for node in nodes:
        while node.start_time >= open_nodes[-1].end_time or node.end_time > open_nodes[-1].end_time:
            open_nodes.pop()
        open_nodes[-1].children.append(node)
        open_nodes.append(node)
    _fold(root, EventTypes.OPERATOR)
    root.fill_stats()
    root.start_time = root.children[0].start_time if root.children else None
    root.end_time = root.children[-1].end_time if root.children else None
    return root


def _fold(root: Any, operator: str) -> None:
    """An operator that calls nothing but one of the same name is one with it, as in torch's own table."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        while len(node.children) == 1:
            (child,) = node.children
            if not (node.name == child.name and node.type == child.type == operator):
                break
            node.children, node.runtimes = child.children, child.runtimes
        waiting += node.children
