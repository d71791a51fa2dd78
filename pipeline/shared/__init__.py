"""Values and sinks that all stages of the conversation share."""
