"""The REST doors: each module makes the routes of one of them, and speaks to the broker through a port."""
