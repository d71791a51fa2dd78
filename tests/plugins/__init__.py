"""Small packages that add an engine, a tool and a door to Earshot, and proof that they work."""
