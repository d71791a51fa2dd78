"""Child processes that run engines or decode files, and their supervision."""
