"""What each command does, a file a command: parses, calls, prints."""
