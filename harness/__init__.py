"""Harness: record a window of training steps, read it, show it."""

__version__ = "0.1.0"
