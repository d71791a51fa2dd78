"""The doors of Willow Inference Server: recognition, speech, chat."""
