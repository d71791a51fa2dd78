"""Audio as bytes, frames, packets and WebRTC calls. The only package that imports aiortc and
PyAV."""
