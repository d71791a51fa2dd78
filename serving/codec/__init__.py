"""Codecs, which turn sound into codes and back."""
