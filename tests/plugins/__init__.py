"""Small packages that add an engine, a tool and a door to Earshot, with tests that they work."""
