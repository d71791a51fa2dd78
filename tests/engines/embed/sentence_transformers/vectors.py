# mypy: ignore-errors
"""Embeds texts with sentence-transformers. Run as `vectors.py FOLDER`, with a JSON list of texts on
the standard input. Prints the vectors as JSON, in the last line."""

import json
import sys

from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], device="cpu")
texts = json.load(sys.stdin)
print(json.dumps(model.encode(texts, convert_to_numpy=True).tolist()))
