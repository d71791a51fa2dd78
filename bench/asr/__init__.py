"""`earshot bench asr`: a corpus through a server, and how well and how fast it was heard."""
