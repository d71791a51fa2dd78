"""Layers, streams and segments of codecs, in torch.

Importing this package needs no torch: the registry imports every package next to the engines.
"""
