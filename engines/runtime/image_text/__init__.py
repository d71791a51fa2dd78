"""Models with a tower for texts and one for images, whose vectors can be compared: CLIP, SigLIP."""
