"""A process that parses traces for the plugin, one after the other, until its input ends.

It imports the plugin's parser and `harness.trace`, and no web server. Requests and answers are pickles on its
standard streams; whatever else is printed goes to stderr.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

STACK_BYTES = 1 << 28
DEEPEST = 20_000
"""Calls nest as deep as the model's modules do, and parser and pickle descend with them."""


class Request(NamedTuple):
    """A file and what the plugin calls it."""

    path: str
    worker: str
    span: str


class Answer(NamedTuple):
    """What the plugin shows of one file; or, where it cannot be read, why."""

    profile: Any = None
    """`torch_tb_profiler.run.RunProfile`."""
    distributed: Any = None
    """`DistributedRunProfileData`, of which the Distributed view is made."""
    error: str | None = None


def parse(request: Request) -> Answer:
    """The plugin's own parser on a normalised trace."""
    from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    from harness.board.official.dialect import name_collectives, teach
    from harness.board.official.normalise import normalised
    from harness.trace.errors import TraceError

    teach()
    try:
        document = normalised(Path(request.path))
        if not any(event["ph"] == "X" for event in document["traceEvents"]):
            return Answer(error=f"{Path(request.path).name} holds no event that could be shown")
        name_collectives({event["name"] for event in document["traceEvents"]})
        data = RunProfileData.from_json(request.worker, request.span, document)
        data.trace_file_path = request.path
        profile = RunGenerator(request.worker, request.span, data).generate_run_profile()
        return Answer(profile, DistributedRunProfileData(data))
    except TraceError as error:
        return Answer(error=str(error))
    except Exception as error:  # the plugin's parser raises whatever a file that it did not expect makes it raise
        logging.getLogger(__name__).debug("%s", request.path, exc_info=True)
        return Answer(error=f"{Path(request.path).name} cannot be parsed: {type(error).__name__}: {error}")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    for request in _received(requests):
        answers.write(pickle.dumps(parse(request), pickle.HIGHEST_PROTOCOL))
        answers.flush()


def _received(requests: BinaryIO) -> Iterator[Request]:
    while True:
        try:
            yield pickle.load(requests)
        except EOFError:
            return


def main() -> None:
    """Serve on the standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool ends it
    os.nice(5)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # the plugin's parser reports every launch that is not as it was in 2021
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.setrecursionlimit(DEEPEST)
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=serve, args=(sys.stdin.buffer, answers))
    thread.start()
    thread.join()
