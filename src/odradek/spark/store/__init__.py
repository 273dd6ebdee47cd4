"""Spark reads channels and archived topics from an object store, without a broker."""
