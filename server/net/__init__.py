"""Sockets and addresses: listeners, TLS, allow-lists and mDNS."""
