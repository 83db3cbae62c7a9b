"""Harness: record a window of training steps, read it, show it."""
