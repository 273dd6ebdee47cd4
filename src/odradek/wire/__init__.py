"""Kafka's wire protocol: bytes to messages and back; nothing here touches a socket or a clock."""
