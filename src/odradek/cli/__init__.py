"""What a person types: one module a command, and `main`, which finds it."""
