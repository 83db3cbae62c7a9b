"""What the plugin's parser has to unlearn, in the process that parses."""

from __future__ import annotations

import itertools
from typing import Any

from harness.board.official.normalise import COLLECTIVES
from harness.board.official.tensor_cores import uses_tensor_cores
from harness.board.official.tree import build
from harness.trace.measure.launches import COMMUNICATION, telling


def teach() -> None:
    """Correct the parser in this process. Doing so twice changes nothing."""
    from torch_tb_profiler.profiler import event_parser, op_tree, overall_parser, tensor_core

    tensor_core.TC_Allowlist.__contains__ = classmethod(lambda _, name: uses_tensor_cores(name))
    if getattr(event_parser.StepParser, "_taught", False):
        return
    event_parser.StepParser._taught = True
    op_tree.OpTreeBuilder._build_tree_internal = build
    _count_communication_by_its_kernels(event_parser)
    _keep_every_step(event_parser)
    _divide_steps_once(overall_parser)
    _say_no_more_than_nanoseconds(overall_parser)


def name_collectives(names: set[str]) -> None:
    """Let the parser know these collectives, `nccl:_all_gather_base` and the like: it has a list of five."""
    from torch_tb_profiler.profiler import trace

    known = (trace.NcclOpNameSet, trace.GlooOpNameSet)
    for prefix, operations in zip(COLLECTIVES, known, strict=True):
        operations.extend(sorted(name for name in names if name.startswith(prefix) and name not in operations))


def _count_communication_by_its_kernels(event_parser: Any) -> None:
    """The time of NCCL's collectives is that of their kernels. The parser adds that of the call on the host, and
    takes the kernels of collectives launched before the window for computation."""
    parser, kinds = event_parser.StepParser, event_parser.EventTypes
    parse_step, parse_nodes = parser._parse_step, event_parser.NodeParserMixin.parse_nodes

    def _parse_step(self: Any, event: Any, comm_nodes: dict[int, Any]) -> None:
        start, end = event.ts, event.ts + event.duration
        if event.type == kinds.KERNEL:
            communicates = COMMUNICATION.search(telling(event.name))
            role = event_parser.ProfileRole.Communication if communicates else event_parser.ProfileRole.Kernel
            self.role_ranges[role].append((start, end))
        elif not (event.type == kinds.USER_ANNOTATION and event.name in event_parser.NcclOpNameSet):
            parse_step(self, event, comm_nodes)
            return
        self.global_min_ts = min(self.global_min_ts, start)
        self.global_max_ts = max(self.global_max_ts, end)

    def _parse_nodes(self: Any, events: Any) -> Any:
        found = parse_nodes(self, events)
        for node in self.communication_data.values():
            if node.name in event_parser.NcclOpNameSet and len(node.kernel_ranges) > 1:
                del node.kernel_ranges[0]
                node.total_time = sum(end - start for start, end in node.kernel_ranges)
        return found

    parser._parse_step = _parse_step
    event_parser.NodeParserMixin.parse_nodes = _parse_nodes


def _keep_every_step(event_parser: Any) -> None:
    """The parser leaves out last steps that launched fewer kernels than the one before, as one that saves does, and
    the time between two steps. A step lasts from the end of the one before, as in the report."""
    update = event_parser.StepParser._update_steps_duration

    def _update_steps_duration(self: Any, previous: Any, device: Any, matched: list[int]) -> None:
        most, on_host = max(matched, default=0), list(self.steps)
        update(self, previous, device, [most] * len(matched))
        if self.cpu_max_ts < self.cpu_min_ts:  # nothing ran on the host
            self.steps = [(self.global_min_ts, self.global_max_ts)]
        ends = [end for _, end in self.steps]
        self.steps = _Steps([self.steps[0], *itertools.pairwise(ends)])
        self.steps.on_host = on_host

    event_parser.StepParser._update_steps_duration = _update_steps_duration
    name = event_parser.generate_communication_nodes

    def generate_communication_nodes(nodes: Any, steps: _Steps, names: list[str]) -> Any:
        # A collective belongs to the step that called it: the device may be steps behind.
        return name(nodes, steps.on_host, names)

    event_parser.generate_communication_nodes = generate_communication_nodes


class _Steps(list[tuple[float, float]]):
    """Begin and end of the steps, of the device's work in them, and of their spans on the host."""

    on_host: list[tuple[float, float]]


def _divide_steps_once(overall_parser: Any) -> None:
    """What a step spent its time on, each moment counted once. Where nothing of the steps is left for the roles that
    follow, the parser begins anew and gives all of it to them."""
    statistics = overall_parser.OverallParser.Statistics

    def create_from_range(cls: Any, steps: Any, role_ranges: Any) -> Any:
        rest, found = overall_parser.merge_ranges(list(steps)), []
        for role in role_ranges:
            found.append(overall_parser.intersection_ranges_lists(rest, role))
            rest = overall_parser.subtract_ranges_lists(rest, found[-1])
        return cls([*found, rest])

    statistics.create_from_range = classmethod(create_from_range)


def _say_no_more_than_nanoseconds(overall_parser: Any) -> None:
    """Tooltips hold sums of doubles, to the last of their digits."""
    costs = overall_parser.OverallParser.Costs
    create = costs.create_from_statistics.__func__

    def create_from_statistics(cls: Any, statistics: Any, total_duration: float) -> Any:
        found = create(cls, statistics, total_duration)
        found.costs = [round(cost, 3) for cost in found.costs]
        return found

    costs.create_from_statistics = classmethod(create_from_statistics)
