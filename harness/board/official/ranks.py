"""The Distributed view: one span of all ranks."""

from __future__ import annotations

import copy
from typing import Any

from harness.board.official.parser import Answer

EVERY_RANK = "All"


def compared(answers: list[Answer], span: str) -> Any:
    """`DistributedRunProfile` of the ranks that are there; None where they do not have the same collectives.

    Waiting is told from transfer by the shortest kernel of each collective, which is that of the last rank to come.
    """
    from torch_tb_profiler.profiler.loader import RunLoader
    from torch_tb_profiler.run import Run

    # The loader writes into what it is given, and would do so again at the next look.
    ranks = [copy.deepcopy(answer.distributed) for answer in answers]
    loader = RunLoader.__new__(RunLoader)  # its constructor starts a process
    loader.run_name = span
    run = Run(span, "")
    for rank in ranks:
        run.add_profile(rank)
    return loader._process_distributed_profiles(list(run.get_profiles()), span) if ranks else None
