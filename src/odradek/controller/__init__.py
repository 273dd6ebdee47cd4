"""What the cluster knows of itself: topics, their ids and settings, and where that is kept."""
