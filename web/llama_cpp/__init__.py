"""Paths of llama.cpp's server, for clients that know no other."""
