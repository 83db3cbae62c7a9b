"""What differs between windows, and what of it is more than noise: pure functions over their findings.

::

    from harness.trace.compare import compare, culprits, regressions
"""

from harness.trace.compare.comparison import Comparison, Row, Side, compare, culprits, regressions, undecided

__all__ = ["Comparison", "Row", "Side", "compare", "culprits", "regressions", "undecided"]
