"""Programs to look at and to run: the demo, the pipeline that it runs, and the same pipeline declared for Spark."""
