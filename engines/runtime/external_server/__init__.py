"""Model servers that run as separate programs: starts, watches, restarts and ends them."""
