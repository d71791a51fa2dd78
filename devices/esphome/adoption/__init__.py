"""Satellites that are found in the network, adopted on the page, and kept."""
