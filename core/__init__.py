"""Values, errors, queues and ids. Imports only the standard library, numpy and msgspec, nothing of
Earshot."""
