"""Willow: what its devices and clients ask a Willow Inference Server."""
