"""What a task does to write: encodes its rows, and sends each of them once."""
