"""Willow Inference Server: recognition, speech, chat."""
