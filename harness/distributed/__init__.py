"""The processes of one job: who they are, what they agree on, how they are started and stopped, who holds what.

::

    launch starts them ──> world: who is this one ──> meeting, stop: at which step ──> strategy: who holds what
"""
