"""The doors: inbound I/O and nothing else."""
