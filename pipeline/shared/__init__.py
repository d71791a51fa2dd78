"""Values and sinks that every stage of the conversation knows."""
