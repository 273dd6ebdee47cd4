"""Kafka's record batch, version 2: header view, CRC, build, parse, compress. Pure: bytes in, bytes out."""
