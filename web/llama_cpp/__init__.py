"""Paths of llama.cpp's server for embeddings and reranking, for clients that know no other."""
