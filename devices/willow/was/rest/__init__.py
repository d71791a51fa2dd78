"""REST API of Willow Application Server."""
