"""HTTP for all doors: connections, authentication, errors, health."""
