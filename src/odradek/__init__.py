"""Odradek: a Kafka-compatible streaming platform that you `pip install`."""

__version__ = "0.1.0"
