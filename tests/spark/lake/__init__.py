"""The tables of files that pipelines write."""
