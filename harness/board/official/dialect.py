"""What the plugin's parser has to unlearn, in the process that parses."""

from __future__ import annotations

from typing import Any

from harness.board.official.normalise import COLLECTIVES
from harness.board.official.tensor_cores import uses_tensor_cores
from harness.trace.launches import COMMUNICATION, telling


def teach() -> None:
    """Correct the parser in this process. Doing so twice changes nothing."""
    from torch_tb_profiler.profiler import event_parser, tensor_core

    tensor_core.TC_Allowlist.__contains__ = classmethod(lambda _, name: uses_tensor_cores(name))
    if getattr(event_parser.StepParser, "_taught", False):
        return
    event_parser.StepParser._taught = True
    _count_communication_by_its_kernels(event_parser)
    _keep_every_step(event_parser)


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
        most = max(matched, default=0)
        update(self, previous, device, [most] * len(matched))
        if self.cpu_max_ts < self.cpu_min_ts:  # nothing ran on the host
            self.steps = [(self.global_min_ts, self.global_max_ts)]
        ends = [end for _, end in self.steps]
        self.steps[1:] = zip(ends, ends[1:], strict=False)

    event_parser.StepParser._update_steps_duration = _update_steps_duration
