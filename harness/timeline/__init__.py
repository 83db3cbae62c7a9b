"""The Perfetto timeline of a window, offline: prepared so that nothing is lost, served with a page of ours.

::

    links ──> view.html ──> app ──> cache ──> prepare
"""
