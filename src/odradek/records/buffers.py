"""The kinds of bytes that this package reads from and writes into.

Names only: all of them speak the buffer protocol, so that a batch is read where it lies, without a copy.
"""

from typing import TypeAlias

ReadBuffer: TypeAlias = bytes | bytearray | memoryview
WriteBuffer: TypeAlias = bytearray | memoryview
