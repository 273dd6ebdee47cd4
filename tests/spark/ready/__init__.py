"""Pipelines that need only parameters, from topic to result."""
