"""Addresses of brokers: `host:port` lists as people write them. No name is resolved here."""

from __future__ import annotations

from typing import NamedTuple

PORT_DEFAULT = 9092
PORT_MAX = 65535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str, port_default: int = PORT_DEFAULT) -> list[Address]:
    """Read `host:port,host:port`; without a port it is Kafka's 9092, and IPv6 hosts stand in brackets."""
    addresses = [_parse_address(part.strip(), port_default) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError(f"no broker address given: write it as host:port, for example 127.0.0.1:{port_default}")
    return list(dict.fromkeys(addresses))


def _parse_address(text: str, port_default: int) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        well_formed = bool(bracket) and (not rest or rest.startswith(":"))
    else:
        host, _, port = text.partition(":")
        well_formed = ":" not in port
    number = int(port) if port.isascii() and port.isdigit() else port_default if not port else -1
    if not well_formed or not host or not 0 < number <= PORT_MAX:
        raise ValueError(f"{text!r} is no broker address: write it as host:port, for example 127.0.0.1:{port_default}")
    return Address(host, number)
