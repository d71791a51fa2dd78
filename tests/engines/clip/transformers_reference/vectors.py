# mypy: ignore-errors
"""Computes vectors with transformers, for comparison.

Run in an environment with torch and transformers as `vectors.py FAMILY FOLDER`: writes a model of
random weights into FOLDER, with the widths of a real one and two layers; then reads token ids and
paths of images from standard input, and writes the vectors and the prepared images into
FOLDER/expected.npz."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

LAYERS = 2

family, folder = sys.argv[1], Path(sys.argv[2])
name = {"clip": "CLIP", "siglip": "Siglip"}[family]
# Newer versions prefer torchvision; Pillow's way is the one that checkpoints were trained with.
images = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
processor = getattr(images, f"{name}ImageProcessorPil")()
config = getattr(transformers, f"{name}Config")(
    text_config={"num_hidden_layers": LAYERS}, vision_config={"num_hidden_layers": LAYERS}
)
torch.manual_seed(1)
model = getattr(transformers, f"{name}Model")(config).eval()
with torch.no_grad():  # initial biases are 0 and would hide a missing one
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.02)
model.save_pretrained(folder)
processor.save_pretrained(folder)

request = json.load(sys.stdin)
opened = [Image.open(path).convert("RGB") for path in request["images"]]
pixels = processor(images=opened, return_tensors="pt")["pixel_values"]


def features(method, **inputs):
    made = method(**inputs)
    return getattr(made, "pooler_output", made).numpy()


with torch.no_grad():
    texts = [
        features(model.get_text_features, input_ids=torch.tensor([ids]))[0]
        for ids in request["texts"]
    ]
    rows = features(model.get_image_features, pixel_values=pixels)
np.savez(folder / "expected.npz", texts=np.stack(texts), images=rows, pixels=pixels.numpy())
