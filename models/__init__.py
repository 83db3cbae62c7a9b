"""Plain `torch.nn` modules; they know nothing of the harness."""
