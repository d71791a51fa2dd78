"""Session object of the Realtime API, and its conversion to our settings."""
