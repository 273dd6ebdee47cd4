"""What goes wrong with a table of files, in words for the person who has to act on it."""

from __future__ import annotations

from odradek.spark.errors import OptionError, SparkError


class LakeError(SparkError):
    """A table cannot take what is written to it, or is not what it should be."""


class LakeOptionError(OptionError, LakeError):
    """A sink's setting is missing, unknown, or makes no sense."""


class SchemaError(LakeError):
    """The columns of a batch do not fit those of the table."""
