"""What may be configured, and what is wrong with what was: told before anything is built."""
