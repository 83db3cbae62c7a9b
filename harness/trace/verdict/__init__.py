"""What bounds the step, and what to change: questions in order, each with its evidence, then advice."""
