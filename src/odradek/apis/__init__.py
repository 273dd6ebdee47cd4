"""Kafka's APIs, one file each: a decoded request in, a call of the broker, a response out."""
