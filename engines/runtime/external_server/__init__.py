"""Model servers that are programs of their own: start, watch, restart and end."""
