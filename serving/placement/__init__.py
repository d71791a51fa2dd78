"""Choice of hardware for each model: which one fits where, and is fast enough."""
