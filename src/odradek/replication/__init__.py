"""Copies of a partition on several brokers: followers pull from the leader, the leader counts who has what.

What is decided is pure (`progress.py`, `fitting.py`, `session.py`); `fetcher.py` and `isr.py` drive it.
"""
