"""Embeddings and reranking of OpenAI's, Jina's and Cohere's REST APIs."""
