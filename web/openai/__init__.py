"""OpenAI's REST API: transcriptions, speech, chat, responses, embeddings, reranking and models."""
