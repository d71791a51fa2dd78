"""Values, errors, queues and ids. Imports only the standard library and numpy, nothing of
Earshot."""
