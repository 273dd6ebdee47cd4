"""What goes wrong between Spark and a topic, in words for the person who has to act on it."""

from __future__ import annotations


class SparkError(Exception):
    """The base of every error that odradek.spark raises by itself."""


class OptionError(SparkError, ValueError):
    """An option is missing, unknown, or has a value that makes no sense."""


class UnreachableError(SparkError):
    """No broker answers at the address that was given."""


class MissingTopicError(SparkError):
    """A topic or a partition that was asked for does not exist."""


class NoMatchingOffsetError(SparkError):
    """There is no record at or after the time at which a read was to start."""


class DataLossError(SparkError):
    """Records that were to be read are not there any more."""
