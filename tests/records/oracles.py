"""The record modules of kafka-python and aiokafka, which nobody but a test may import."""

import warnings

from aiokafka.record import default_records as aiokafka_records
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord

# Our tests turn warnings into errors; kafka-python 3.0 still calls importlib.resources.read_text when imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records
    from kafka.record import util as kafka_python_util

__all__ = ["AiokafkaControlRecord", "aiokafka_records", "kafka_python_records", "kafka_python_util"]
