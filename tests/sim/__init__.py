"""Seeded simulation of a whole quorum: the pure Raft machine under loss, delay, cuts, crashes and drifting clocks."""
