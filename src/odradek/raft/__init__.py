"""KRaft (KIP-595) as a pure machine: an event and the time go in, what to persist, send and apply comes out."""
