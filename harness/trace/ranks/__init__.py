"""The ranks of one window: each read by itself, laid on one clock, held against the others."""
