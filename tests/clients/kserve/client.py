# mypy: ignore-errors
"""Uses `tritonclient` as its examples do; prints what it got as JSON."""

import json
import sys
import wave

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

PREFIX = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"


def transcribed(module, client, samples):
    row = np.zeros((2, 480_000), np.float32)
    row[:, : len(samples)] = samples
    inputs = [
        module.InferInput("WAV", row.shape, "FP32"),
        module.InferInput("WAV_LENS", [2, 1], "INT32"),
        module.InferInput("TEXT_PREFIX", [2, 1], "BYTES"),
    ]
    inputs[0].set_data_from_numpy(row)
    inputs[1].set_data_from_numpy(np.array([[len(samples)], [0]], np.int32))
    inputs[2].set_data_from_numpy(np.array([[PREFIX], [""]], object))
    outputs = [module.InferRequestedOutput("TRANSCRIPTS")]
    answer = client.infer("infer_bls", inputs, outputs=outputs, request_id="7")
    return [text.decode() for text in answer.as_numpy("TRANSCRIPTS")]


def embedded(module, client):
    client.load_model("tiny-embedder")
    is_loaded = client.is_model_ready("tiny-embedder")
    texts = module.InferInput("TEXT", [2, 1], "BYTES")
    texts.set_data_from_numpy(np.array([["cat"], ["dog"]], object))
    vectors = client.infer("tiny-embedder", [texts]).as_numpy("EMBEDDING")
    client.unload_model("tiny-embedder")
    return [is_loaded, client.is_model_ready("tiny-embedder"), vectors.round(5).tolist()]


def refused(client):
    try:
        client.get_model_metadata("parrot")
    except InferenceServerException as error:
        return [str(error.status()), error.message()]


def main():
    http_url, grpc_url, path = sys.argv[1:]
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
    got = {}
    for name, module, url in (("http", httpclient, http_url), ("grpc", grpcclient, grpc_url)):
        client = module.InferenceServerClient(
            url, **({"network_timeout": 60} if name == "http" else {})
        )
        as_json = {"as_json": True} if name == "grpc" else {}
        got[name] = {
            "states": [client.is_server_live(), client.is_server_ready()],
            "transcripts": transcribed(module, client, samples),
            "embeddings": embedded(module, client),
            "refused": refused(client),
            "inputs": [
                one["name"] for one in client.get_model_metadata("whisper", **as_json)["inputs"]
            ],
            "statistics": client.get_inference_statistics("infer_bls", **as_json)["model_stats"][0],
        }
    print(json.dumps(got))


main()
