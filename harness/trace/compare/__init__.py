"""What differs between windows, and since when in a run's life: pure functions over their findings.

::

    from harness.trace.compare import compare, culprits, regressions
"""

from harness.trace.compare.comparison import Comparison, Row, Side, compare, culprits, regressions, undecided

__all__ = ["Comparison", "Row", "Side", "compare", "culprits", "regressions", "undecided"]
