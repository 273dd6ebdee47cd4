"""Reads from object stores."""
