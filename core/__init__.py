"""Values, errors, queues and ids: standard library and numpy only; imports nothing of ours."""
