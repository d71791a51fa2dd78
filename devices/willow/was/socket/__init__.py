"""WebSocket between Willow Application Server and its devices."""
