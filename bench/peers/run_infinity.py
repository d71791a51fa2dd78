"""infinity's own server (`infinity_emb v2`) with one model; runs in the peer's environment.

    python run_infinity.py --embedder FOLDER --name NAME --engine torch --port PORT --threads N

The engine `optimum` computes with onnxruntime; the folder then contains `model_optimized.onnx`.
"""

import argparse
import os
import sys
from importlib import import_module


def main() -> None:
    """Serves the model with the options of infinity's documentation for a processor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", required=True)
    parser.add_argument("--name", required=True, help="name of the model in requests")
    parser.add_argument("--engine", choices=["torch", "optimum"], required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    # Both libraries read it when they are imported.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import_module("torch").set_num_threads(options.threads)
    sys.argv = [
        "infinity_emb",
        "v2",
        *("--model-id", options.embedder),
        *("--served-model-name", options.name),
        *("--engine", options.engine),
        *("--device", "cpu"),
        *("--url-prefix", "/v1"),
        *("--host", "127.0.0.1"),
        *("--port", options.port),
        *("--log-level", "error"),
    ]
    import_module("infinity_emb.cli").cli()


if __name__ == "__main__":
    main()
