# mypy: ignore-errors
"""A user's program with Ingrain's client before 0.1. Run as `old_client.py INFERENCE MODELS NAME
IMAGE`, with an image as base64. Prints one JSON object."""

import json
import sys

import ingrain
from ingrain.ingrain_errors import IngrainWebException

inference, models, name, image = sys.argv[1:]
CLIP = {"name": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"}

client = ingrain.Client(inference_server_url=inference, model_server_url=models)
model = client.load_sentence_transformer_model(name=name)
told = {
    "health": [one["message"] for one in client.health()],
    "texts": client.infer_text(name=name, text=["cat", "dog sits on mat"])["embeddings"],
    "one": model.infer_text(text="cat")["embeddings"],
    "both": client.infer(name=name, text="cat")["textEmbeddings"],
    "loaded": client.loaded_models(),
    "listed": client.repository_models(),
    "statistics": [one["inferenceCount"] for one in client.metrics()["modelStats"]],
}
try:
    client.infer_image(name=name, image="x")
except IngrainWebException as error:
    told["refused"] = [error.status_code, error.body]
clip = client.load_clip_model(**CLIP)
both = clip.infer(text=["cat", "dog"], image=f"data:image/png;base64,{image}")
told["clip"] = {
    "texts": clip.infer_text(text="cat")["embeddings"],
    "images": clip.infer_image(image=[image, image])["embeddings"],
    "both": [both["textEmbeddings"], both["imageEmbeddings"]],
}
try:
    client.infer_image(**CLIP, image="bm8gaW1hZ2U=")
except IngrainWebException as error:
    told["clip"]["refused"] = [error.status_code, error.body]
told["clip"]["unloaded"] = client.unload_model(**CLIP)["message"]
told["unloaded"] = client.unload_model(name=name)["message"]
told["deleted"] = client.delete_model(name=name)["message"]
print(json.dumps(told))
