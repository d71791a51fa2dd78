"""Sockets and addresses: listeners, TLS, allow-lists, mDNS."""
