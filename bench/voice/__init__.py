"""`earshot bench voice`: response latency at the client, from last speech sample to first audible
sample."""
