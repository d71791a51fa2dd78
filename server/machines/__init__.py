"""Servers of several machines that work together: who there is, who answers what, and the
authenticated requests between them."""
