"""The composition root: command line, configuration, access, metrics. Knows everybody."""
