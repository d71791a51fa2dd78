"""Codecs for the protocols of devices' firmware, without I/O and without a clock."""
