"""Audio files: decoding, encoding, and uploads that are spooled to disk."""
