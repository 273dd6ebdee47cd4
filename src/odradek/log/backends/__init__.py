"""Where segments can live. One module a kind; `log.py` knows them only as `Segment` and `Backend`."""
