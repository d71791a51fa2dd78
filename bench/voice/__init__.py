"""`earshot bench voice`: from the last sample somebody says to the first they hear, many times."""
