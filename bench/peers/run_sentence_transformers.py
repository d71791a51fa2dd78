"""sentence-transformers behind FastAPI, as its users put it there; runs in the peer's environment.

    python run_sentence_transformers.py --embedder FOLDER --reranker FOLDER --port PORT --threads N
    python run_sentence_transformers.py --embedder FOLDER --threads N --loop WORDS --calls N

`--loop` serves nothing: it calls the library for one text of WORDS words after the other, and
prints the median in ms. The operations are synchronous functions, which FastAPI runs in its pool of
threads.
"""

import argparse
import time
from importlib import import_module
from statistics import median
from typing import Any


def main() -> None:
    """Serves both models, or measures the library alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", required=True)
    parser.add_argument("--reranker")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--loop", type=int, metavar="WORDS")
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    import_module("torch").set_num_threads(options.threads)
    library = import_module("sentence_transformers")
    embedder = library.SentenceTransformer(options.embedder, device="cpu")
    if options.loop is not None:
        print(f"{_loop_ms(embedder, options.loop, options.calls):.2f}")
        return
    reranker = library.CrossEncoder(options.reranker, device="cpu")
    import_module("uvicorn").run(
        _application(embedder, reranker), port=options.port, log_level="warning"
    )


def _loop_ms(embedder: Any, words: int, calls: int) -> float:
    embedder.encode(["water " * words])  # the first call is slower
    took_ms = []
    for _ in range(calls):
        began_s = time.perf_counter()
        embedder.encode(["water " * words])
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return median(took_ms)


def _application(embedder: Any, reranker: Any) -> Any:
    application = import_module("fastapi").FastAPI()

    def embeddings(body: dict[str, Any]) -> dict[str, Any]:
        given = body["input"]
        rows = embedder.encode([given] if isinstance(given, str) else given)
        return {"data": [{"index": n, "embedding": row.tolist()} for n, row in enumerate(rows)]}

    def rerank(body: dict[str, Any]) -> dict[str, Any]:
        pairs = [(body["query"], document) for document in body["documents"]]
        scores = reranker.predict(pairs).tolist()
        return {"results": [{"index": n, "relevance_score": s} for n, s in enumerate(scores)]}

    application.post("/v1/embeddings")(embeddings)
    application.post("/v1/rerank")(rerank)
    return application


if __name__ == "__main__":
    main()
