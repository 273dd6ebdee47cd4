"""CRC-32C (Castagnoli), the checksum of a v2 record batch.

The hardware-backed `crc32c` wheel does the work: under 1 µs for 16 KiB, on any buffer, without copying it.
"""

import crc32c as _castagnoli

from odradek.records.buffers import ReadBuffer


def crc32c(data: ReadBuffer) -> int:
    """Return the CRC-32C of the bytes as an unsigned 32-bit number."""
    return int(_castagnoli.crc32c(data))
