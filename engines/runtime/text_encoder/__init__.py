"""Text encoders of the BERT family on onnxruntime, for embeddings and reranking."""
