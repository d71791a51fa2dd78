"""Code that engines of several kinds share: workers, external servers, HTTP clients, CUDA."""
