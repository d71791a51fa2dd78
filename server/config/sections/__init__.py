"""Declares the sections of the configuration, one file each."""
