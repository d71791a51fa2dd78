"""What all other folders use: values, errors, events, queues, and Protocols that cross layers.

Imports only the standard library, numpy and msgspec, nothing of Earshot.
"""
