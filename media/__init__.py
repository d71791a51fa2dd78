"""Audio as bytes, frames, packets and calls: the only place that knows aiortc and PyAV."""
