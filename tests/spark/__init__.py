"""Tests with a real Spark: one session for all of them, in one worker of pytest-xdist (group "spark")."""
