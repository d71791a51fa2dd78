# mypy: ignore-errors
"""A user's program with Ingrain's client from 0.1 on. Run as `client.py INFERENCE MODELS NAME`.
Prints one JSON object."""

import json
import sys

import ingrain
from ingrain.ingrain_errors import IngrainWebException

inference, models, name = sys.argv[1:]
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
told["unloaded"] = client.unload_model(name=name).message
told["deleted"] = client.delete_model(name=name).message
print(json.dumps(told))
