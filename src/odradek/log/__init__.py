"""The commit log: what a partition is on disk, and how it survives a crash."""
