"""The Realtime session object and its conversion to settings."""
