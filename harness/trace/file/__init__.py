"""From a trace file to columns.

::

    opening ──> contents (decompressed, within bounds) ──> decode, or salvage what is damaged ──> columns
"""
