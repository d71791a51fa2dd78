"""`earshot keys`: keys of persons and programs."""
