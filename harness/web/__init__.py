"""What every server of ours shares: to whom it answers, how long it waits, how it says no."""
