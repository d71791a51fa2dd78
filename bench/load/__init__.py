"""`earshot bench embeddings`, `rerank` and `chat`: load tests of any server with OpenAI's API."""
