"""The Windows tab: a TensorBoard plugin that shows a run's windows from their ``window.json`` files.

::

    plugin ──> places (what lies below the logdir) ──> summaries, life, window, compare ──> static/*.js
"""
