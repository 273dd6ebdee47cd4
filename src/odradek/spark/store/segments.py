"""What a task does to read an archived topic: reads pieces of segments from the store and decodes them into Arrow.

Segments are the log's own batches. As in a read from a broker without `read_committed`, what an aborted transaction
wrote is there; its markers are not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from odradek.model import TopicPartition
from odradek.objects.archive import read_archived
from odradek.objects.errors import ObjectMissingError, StoreError
from odradek.records.errors import RecordError
from odradek.spark.collector import leave_modules_alone
from odradek.spark.errors import DataLossError, SparkError
from odradek.spark.read.decode import decode
from odradek.spark.read.scan import scan
from odradek.spark.store.objects import together
from odradek.spark.store.opening import PATIENCE_S, asked, opened
from odradek.spark.store.options import StoreTarget
from odradek.spark.store.pieces import Piece

logger = logging.getLogger(__name__)


def read_pieces(
    target: StoreTarget, pieces: Sequence[Piece], columns: tuple[str, ...], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of some pieces, in order."""
    leave_modules_alone()
    return together(
        batch for piece in pieces for batch in _read_piece(target, piece, columns, fail_on_data_loss=fail_on_data_loss)
    )


def _read_piece(
    target: StoreTarget, piece: Piece, columns: tuple[str, ...], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    store = opened(target)
    partition = TopicPartition(piece.segment.topic, piece.segment.partition)
    position = piece.start
    blocks = read_archived(store, piece.segment, start=position, end=piece.end)

    def following() -> memoryview | ObjectMissingError | None:
        nonlocal blocks
        try:
            return next(blocks, None)
        except ObjectMissingError as error:
            return error
        except StoreError:  # which ends the generator
            blocks = read_archived(store, piece.segment, start=position, end=piece.end)
            raise

    while (block := asked(target, following, patience_s=PATIENCE_S)) is not None:
        if isinstance(block, ObjectMissingError):
            _lost(f"offsets {position} to {piece.end - 1} of {partition}: {block}", fail_on_data_loss)
            return
        try:
            scanned = scan(block, position, piece.end)
            yield from decode(scanned, partition, position, piece.end, columns)
        except RecordError as error:
            raise SparkError(f"what the archive holds of {partition} cannot be read: {error}") from error
        position = scanned.next_offset


def _lost(what: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise DataLossError(
            f"{what}. It was there when the read was planned: the topic's retention has removed it since, or it was"
            " deleted. If that may happen, set failOnDataLoss to false: the query then goes on with what is there"
        )
    logger.warning("%s. failOnDataLoss is false: going on with what is there", what)
