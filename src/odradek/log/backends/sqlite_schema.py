"""What stands in the database of a sqlite segment, and the bytes of an empty one.

`batches` is the segment: each batch as it came over the wire. `contents` says where the records of a batch lie, so
that the view `records` can show them to anybody with `sqlite3`; the broker itself never reads it.
"""

from __future__ import annotations

import sqlite3
from functools import cache

SCHEMA = """
CREATE TABLE batches (
    base_offset INTEGER PRIMARY KEY,
    last_offset INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL,
    position INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE contents (
    base_offset INTEGER PRIMARY KEY,
    places TEXT NOT NULL,
    plain BLOB
);
CREATE VIEW records AS
SELECT
    b.base_offset + json_extract(r.value, '$[0]') AS offset,
    b.max_timestamp + json_extract(r.value, '$[1]') AS timestamp,
    CASE WHEN json_extract(r.value, '$[3]') >= 0 THEN
        substr(coalesce(c.plain, b.data), json_extract(r.value, '$[2]'), json_extract(r.value, '$[3]'))
    END AS key,
    CASE WHEN json_extract(r.value, '$[5]') >= 0 THEN
        substr(coalesce(c.plain, b.data), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'))
    END AS value
FROM batches AS b JOIN contents AS c ON c.base_offset = b.base_offset, json_each(c.places) AS r;
"""

ROW = "SELECT base_offset, last_offset, max_timestamp, position, newest, data FROM batches"
INSERT_BATCH = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)"
INSERT_CONTENTS = "INSERT INTO contents VALUES (?, ?, ?)"

_WRITE_VERSION_AT, _READ_VERSION_AT = 18, 19  # of the database file's head (https://sqlite.org/fileformat2.html)
_WAL = 2


@cache
def empty_database() -> bytes:
    """The file of a segment without batches, in WAL mode: one write makes it, and sqlite need not be asked."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(SCHEMA)
        image = bytearray(connection.serialize())
    finally:
        connection.close()
    image[_WRITE_VERSION_AT] = image[_READ_VERSION_AT] = _WAL
    return bytes(image)
