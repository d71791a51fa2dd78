"""Audio codecs: Opus, G.711, AMR."""
