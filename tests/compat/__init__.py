"""Other people's own test suites, pointed at a running broker: `make compat`.

Only the runner, the allow-lists and FINDINGS.md live here; the suites are fetched into a cache directory and built
there.
"""
