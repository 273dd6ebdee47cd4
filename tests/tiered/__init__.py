"""Archived topics on real brokers: read from the first offset, byte for byte, whatever ends in between."""
