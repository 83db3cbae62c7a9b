"""What a report says, a section a file: documents, before anything is known of the place where they are shown."""
