"""The Diff view's trees and tables, operators paired by name."""

from __future__ import annotations

from typing import Any


def compare(base: Any, experiment: Any) -> Any:
    """`DiffStats` of two `RunProfile`s: all threads' operators, where the plugin takes those of the first thread."""
    from torch_tb_profiler.profiler.diffrun import diff_summary
    from torch_tb_profiler.profiler.diffrun.tree import DiffNode

    return paired(diff_summary(DiffNode.create_node(_operators(base), _operators(experiment))))


def paired(stats: Any) -> Any:
    """The same, with the n-th row of the left table and that of the right one of the same operator: the page pairs
    them by their place. An operator that one side lacks is there with zeros."""
    left = {row.name: row for row in stats.left.op_aggs}
    right = {row.name: row for row in stats.right.op_aggs}
    names = sorted(
        left | right, key=lambda name: -max(side[name].host_duration for side in (left, right) if name in side)
    )
    for side, rows in ((stats.left, left), (stats.right, right)):
        side.op_aggs = [_whole(rows[name]) if name in rows else _nothing(name) for name in names]
    for child in stats.children:
        paired(child)
    return stats


def _whole(row: Any) -> Any:
    """In whole microseconds, as the Operator view has them: the page subtracts, and shows every digit."""
    return row._replace(**{field: round(getattr(row, field)) for field in row._fields if field.endswith("duration")})


def _nothing(name: str) -> Any:
    from torch_tb_profiler.profiler.diffrun.contract import OpAgg

    return OpAgg(name, 0, 0, 0, 0, 0)


def _operators(profile: Any) -> list[Any]:
    """What stands inside the steps, of every thread and in order of time; all, where there are no steps."""
    from torch_tb_profiler.profiler.node import ProfilerStepNode
    from torch_tb_profiler.profiler.trace import EventTypes

    found: list[Any] = []
    for root in profile.tid2tree.values():
        for node in root.children:
            found += node.children if isinstance(node, ProfilerStepNode) else [node]
    found = [node for node in found if node.type != EventTypes.USER_ANNOTATION]
    return sorted(found, key=lambda node: (node.start_time, -node.end_time))
