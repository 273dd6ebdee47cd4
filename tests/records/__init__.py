"""Tests of odradek.records."""
