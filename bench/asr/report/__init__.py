"""Reports of `earshot bench asr`."""
