"""Figures, by hand and beside a peer: `python -m bench.log`, `python -m bench.kafka`."""
