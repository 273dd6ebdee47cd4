"""Files: the real ones, and ones in memory that can fail on purpose."""
