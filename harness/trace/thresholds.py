"""Every number that a verdict compares with, and why it is that number."""

from __future__ import annotations

from typing import NamedTuple


class Threshold(NamedTuple):
    value: float
    reason: str


BUSY = Threshold(
    0.8,
    "A queue that never runs dry keeps the device working but for the gaps between kernels: the labelled "
    "device-bound traces are 92 to 100 % busy, those that wait at most 37 %. Between 0.8 and 0.92 lies "
    "what a "
    "loop loses at its edges (logging, a synchronised loss). Below 0.8 at least a fifth of every step is "
    "waiting, and ending it gains more than a quarter (1 / 0.8), which no faster kernel gives for free.",
)
DOUBT = Threshold(
    0.4,
    "Without an unprofiled step time the gaps include what the profiler costs the host. It slows a loop "
    "by 1.3 "
    "to 2.4 times on the traces here and 1.4 to 2.0 in the field; so a device that is busy for 0.8 / 2 of "
    "the "
    "traced step may be at the busy threshold without the profiler, and overhead cannot be told.",
)
COVERAGE = Threshold(
    0.5,
    "Compute- or memory-bound is said of the step, so more than half of its kernel time must be known to be "
    "one or the other.",
)
ATTAINED = Threshold(
    0.1,
    "Eager kernels of a size that fills the device reach a third or more of the roof they are under; under a "
    "tenth, something else (latency, too few blocks) bounds a kernel and neither roof does.",
)
FILLED_BLOCKS_PER_SM = Threshold(
    0.5,
    "A grid over half of the multiprocessors can saturate either roof; one over fewer leaves most of the "
    "device "
    "empty and is bound by latency.",
)
FILLED_US = Threshold(5.0, "Below about 5 µs a kernel is mostly start-up and drain, whatever it does.")
INPUT_ON_CPU = Threshold(
    0.5,
    "Without a device the loader and the model share the host; the loop is waiting for input when that takes "
    "most of the step.",
)
LONG_DELAY_US = Threshold(
    1000.0,
    "A launch takes some µs and the operators around it some tens; a millisecond without any launch is something else.",
)
WORTH_ADVICE = Threshold(
    0.1,
    "A tenth of the step is a gain of a tenth: worth a sentence even where it is not what bounds the step.",
)
LATE = Threshold(
    0.05,
    "Of the step, exposed, on the rank that waits most: who would look for a late rank for less than a twentieth "
    "of the job's time? Ranks that are equal wait a few percent for each other, one for another in turn.",
)
LAST = Threshold(
    2 / 3,
    "Of all waiting, what ends when one rank joins: it is last for twice as much as all others together. Two equal "
    "ranks have half each.",
)
"""Source of the questions and their order: the issue's, which is that of `Making Deep Learning Go Brrrr`
(overhead, then bandwidth, then compute) with the waits of a training loop in front."""
