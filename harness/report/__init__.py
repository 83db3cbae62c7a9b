"""Findings as terminal tables, Markdown or JSON.

::

    findings ──> sections ──> document.Section ──> terminal | markdown
"""
