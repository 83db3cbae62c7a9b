"""What lies on disk, known in one place: names, scanner, runs, windows, and who reads them."""
