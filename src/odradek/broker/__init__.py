"""The protocol-free core: topics, partitions and those who wait for them. Every door is a shell over it."""
