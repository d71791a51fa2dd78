"""`earshot bench asr`: sends a corpus to a server and measures accuracy and speed of
recognition."""
