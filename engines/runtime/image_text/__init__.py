"""CLIP and SigLIP models: two networks ("towers"), one for texts and one for images, whose vectors
can be compared."""
