"""Walks through what the fetcher has ready, batch by batch and record by record, and moves the positions along.

A position is behind the last record that was handed out: what is committed is what the application has seen.
"""

from __future__ import annotations

from odradek.client.errors import ClientError
from odradek.client.fetched import ConsumerRecord
from odradek.client.fetcher import Chunk, Fetcher, PartitionState
from odradek.records.errors import RecordError


class Cursor:
    """Where a consumer is in the records that have been fetched."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._chunk: Chunk | None = None
        self._state = PartitionState(0)
        self._sought = (
            -1
        )  # differs from the state's when the position was set elsewhere: the records are worthless then
        self._records: list[ConsumerRecord] = []
        self._at = 0
        self._batch_end = 0  # the position when all records of the batch are handed out

    def next(self) -> ConsumerRecord | None:
        """The next record of the current batch; None when it is used up."""
        at = self._at
        if at < len(self._records) and self._sought == self._state.sought:
            record = self._records[at]
            self._at = at = at + 1
            self._state.position = record.offset + 1 if at < len(self._records) else self._batch_end
            return record
        return None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """As many records as are ready, up to a number; no waiting."""
        taken: list[ConsumerRecord] = []
        while len(taken) < max_records and (self._has_records() or self.load()):
            end = self._at + max_records - len(taken)
            taken += self._records[self._at : end]
            self._at = min(end, len(self._records))
            self._state.position = taken[-1].offset + 1 if self._at < len(self._records) else self._batch_end
        return taken

    def _has_records(self) -> bool:
        return self._at < len(self._records) and self._sought == self._state.sought

    def load(self) -> bool:
        """Decode the next batch that has records; False if none is ready."""
        self._records, self._at = [], 0
        self._stop_at_end(self._state)
        while True:
            chunk = self._chunk
            if chunk is None or chunk.sought != chunk.state.sought or not chunk.fetched:
                chunk = self._chunk = self._fetcher.next_chunk()
                if chunk is None:
                    return False
            if chunk.fetched:
                self._decode(chunk)
            else:
                chunk.state.position = max(chunk.state.position, chunk.fetched.next_offset)
            self._stop_at_end(chunk.state)
            if self._has_records():
                return True

    def _decode(self, chunk: Chunk) -> None:
        state = chunk.state
        try:
            records, batch_end = chunk.fetched.next_batch()
        except RecordError as error:
            partition, position = chunk.fetched.partition, state.position
            self._chunk = None
            self._fetcher.assign({partition: position})
            raise ClientError(
                f"the batch at offset {position} of partition {partition} cannot be read: {error}"
            ) from None
        if state.end is not None and batch_end > state.end:
            records = [record for record in records if record.offset < state.end]
        self._state, self._sought = state, state.sought
        self._records, self._at, self._batch_end = records, 0, batch_end
        if not records:
            state.position = batch_end

    def _stop_at_end(self, state: PartitionState) -> None:
        if state.end is not None and not state.is_done and state.position >= state.end:
            self._fetcher.finish(state)
