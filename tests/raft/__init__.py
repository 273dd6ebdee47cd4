"""Tests of the Raft machine: rules one by one, and scenarios as transcripts in golden/."""
