"""Command `earshot audio`: recordings without a server."""
