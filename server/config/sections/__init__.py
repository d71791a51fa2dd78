"""The sections of the configuration, a file for each."""
