"""Which version of an API to speak with a broker: the highest that both sides know (KIP-35, KIP-511).

Pure. The ranges of the broker come from its ApiVersions answer, ours from the message classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from odradek.client.errors import ClientError
from odradek.wire.api import ApiKey
from odradek.wire.schema import Message

# Where the messages know older versions than a client can use: today's batches need Produce 3 (KIP-98), asking without
# creating needs Metadata 4 (KIP-204), asking for all of a group's offsets needs OffsetFetch 2 (KIP-88).
LEAST: Mapping[ApiKey, int] = MappingProxyType({ApiKey.PRODUCE: 3, ApiKey.METADATA: 4, ApiKey.OFFSET_FETCH: 2})


class ApiRanges:
    """What one broker speaks."""

    def __init__(self, address: str, ranges: Mapping[int, tuple[int, int]]) -> None:
        """`ranges` gives the lowest and the highest version by API key; `address` is for error messages."""
        self._address = address
        self._ranges = dict(ranges)

    def choose(self, request: type[Message], version_max: int | None = None) -> int:
        """The highest version that both know, at most `version_max`; a ClientError when there is none."""
        key = int(request.api_key)
        low, high = _usable(request)
        if version_max is not None:
            high = min(high, version_max)
        if key not in self._ranges:
            raise ClientError(f"the broker at {self._address} does not offer {api_name(key)}: it may be too old for it")
        broker_low, broker_high = self._ranges[key]
        chosen = min(high, broker_high)
        if chosen < max(low, broker_low):
            raise ClientError(
                f"the broker at {self._address} offers {api_name(key)} in versions {broker_low} to {broker_high},"
                f" but {low} to {high} are needed: one of the two has to be upgraded"
            )
        return chosen

    def offers(self, request: type[Message]) -> bool:
        """Whether there is a version of this API that both know."""
        low, high = _usable(request)
        broker_low, broker_high = self._ranges.get(int(request.api_key), (0, -1))
        return max(low, broker_low) <= min(high, broker_high)


def _usable(request: type[Message]) -> tuple[int, int]:
    low, high = request.versions
    return max(low, LEAST.get(request.api_key, low)), high


def api_name(key: int) -> str:
    """The name of an API for people: METADATA is `Metadata`."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
