"""The listener for gRPC."""
