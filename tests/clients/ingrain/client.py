# mypy: ignore-errors
"""A user's program with Ingrain's client from 0.1 on. Run as `client.py INFERENCE MODELS NAME
IMAGE`, with an image as base64. Prints one JSON object."""

import json
import sys

import ingrain
from ingrain.ingrain_errors import IngrainWebException

inference, models, name, image = sys.argv[1:]
CLIP = "hf-hub:laion/CLIP-ViT-B-32-laion2B-s34B-b79K"

client = ingrain.Client(inference_server_url=inference, model_server_url=models)
model = client.load_model(name=name, library="sentence_transformers")
arrays = ingrain.Client(inference_server_url=inference, model_server_url=models, return_numpy=True)
told = {
    "health": [one.message for one in client.health()],
    "texts": client.embed_text(name=name, text=["cat", "dog sits on mat"]).embeddings,
    "one": model.embed_text(text="cat", n_dims=4).embeddings,
    "both": client.embed(name=name, text="cat").text_embeddings,
    "shape": list(arrays.embed_text(name=name, text=["cat"]).embeddings.shape),
    "size": client.model_embedding_dims(name).embedding_size,
    "loaded": [[one.name, one.library] for one in client.loaded_models().models],
    "listed": [[one.name, one.state] for one in client.repository_models().models],
    "requests": [
        [one.name, one.inference_count, one.batch_stats[0].compute_infer.count]
        for one in client.metrics().model_stats
    ],
}
try:
    client.embed_image(name=name, image="x")
except IngrainWebException as error:
    told["refused"] = [error.status_code, error.text]
clip = client.load_model(name=CLIP, library="open_clip")
both = clip.embed(text=["cat", "dog"], image=f"data:image/png;base64,{image}")
told["clip"] = {
    "texts": clip.embed_text(text="cat").embeddings,
    "images": clip.embed_image(image=[image, image], n_dims=4).embeddings,
    "both": [both.text_embeddings, both.image_embeddings],
    "size": client.model_embedding_dims(CLIP).embedding_size,
    "loaded": [[one.name, one.library] for one in client.loaded_models().models][-1],
    "metrics": [one.name for one in client.metrics().model_stats][-1],
}
try:
    client.embed_image(name=CLIP, image="bm8gaW1hZ2U=")
except IngrainWebException as error:
    told["clip"]["refused"] = [error.status_code, error.text]
told["clip"]["unloaded"] = client.unload_model(name=CLIP).message
told["unloaded"] = client.unload_model(name=name).message
told["deleted"] = client.delete_model(name=name).message
print(json.dumps(told))
