"""Tests of pipelines: their files, `odradek pipeline`, and how they run."""
