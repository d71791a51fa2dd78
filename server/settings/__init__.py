"""Settings that can be changed while the server runs: their description, edits of the settings
file, and the HTTP routes for the page."""
