"""Willow's application server (WAS): the socket `/ws` of its devices, and its REST API."""
