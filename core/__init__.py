"""Values, errors, events, queues, and Protocols that cross layers: all other folders use them.

Imports only the standard library, numpy and msgspec, nothing of Earshot.
"""
