"""The REST operations of Willow Application Server."""
