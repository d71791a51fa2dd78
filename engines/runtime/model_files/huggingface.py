"""Environment of worker processes that run models with Hugging Face's library."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OPENBLAS_NUM_THREADS": "0",
}
"""Environment variables of the worker. It downloads nothing, and uses no threads for tokenizing,
because the texts are short. On ARM, torch computes with OpenBLAS; 0 lets the setting `threads`
decide."""
