"""What a task does to read: fetches a range of offsets and decodes it into Arrow."""
