"""KServe's inference protocol, version 2, as clients of Triton speak it."""
