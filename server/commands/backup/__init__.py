"""`earshot backup` and `earshot restore`: one archive of the configuration and the state."""
