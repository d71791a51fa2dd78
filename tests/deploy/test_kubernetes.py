"""The Kubernetes manifests against Kubernetes' own schemas, and against what each other says.

KubeRay's RayCluster has no schema in any package. `RAY_CLUSTER` is a small one of ours with the
fields that we use, written by hand from KubeRay's `ray.io_rayclusters.yaml` (feeaf72, 2026-08-19).
"""

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from server.config.load import load
from tests.shared import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.29", "1.37")
"Kubernetes releases: the first with sidecars by default, and the newest that has schemas."

GROUP: dict[str, Any] = {
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
    "serviceType": {"type": "string"},
    "template": {"type": "object", "required": ["spec"]},
}
NUMBER = {"type": "integer", "minimum": 0}

RAY_CLUSTER: dict[str, Any] = {
    "type": "object",
    "required": ["headGroupSpec"],
    "additionalProperties": False,
    "properties": {
        "rayVersion": {"type": "string"},
        "enableInTreeAutoscaling": {"type": "boolean"},
        "authOptions": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "mode": {"enum": ["disabled", "token"]},
                "secretName": {"type": "string"},
            },
        },
        "headGroupSpec": {
            "type": "object",
            "required": ["template"],
            "additionalProperties": False,
            "properties": GROUP,
        },
        "workerGroupSpecs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["groupName", "minReplicas", "maxReplicas", "template"],
                "additionalProperties": False,
                "properties": {
                    **GROUP,
                    "groupName": {"type": "string"},
                    "replicas": NUMBER,
                    "minReplicas": NUMBER,
                    "maxReplicas": NUMBER,
                },
            },
        },
    },
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


FILES = sorted(FOLDER.rglob("*.yaml"))
EVERY = [document for path in FILES for document in documents(path)]
PLAIN = [document for document in EVERY if document["kind"] != "RayCluster"]
(RAY,) = (document for document in EVERY if document["kind"] == "RayCluster")


def pod_specs() -> list[dict[str, Any]]:
    groups = [RAY["spec"]["headGroupSpec"], *RAY["spec"]["workerGroupSpecs"]]
    owners = [*groups, *(each["spec"] for each in PLAIN if each["kind"] == "StatefulSet")]
    return [owner["template"]["spec"] for owner in owners]


def containers() -> list[dict[str, Any]]:
    return [
        container
        for spec in pod_specs()
        for container in [*spec["containers"], *spec.get("initContainers", [])]
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document", PLAIN, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_manifest_is_valid(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ray_cluster_and_its_pods_are_valid(version: str) -> None:
    assert RAY["apiVersion"] == "ray.io/v1"
    jsonschema.validate(RAY["spec"], RAY_CLUSTER)
    for spec in pod_specs():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, version, strict=True)


def test_a_wrong_field_is_found() -> None:
    wrong = {**PLAIN[0], "kinds": "Namespace"}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**RAY["spec"], "headGroup": {}}, RAY_CLUSTER)


def test_every_pod_has_few_rights_and_every_container_states_its_need() -> None:
    assert all(spec["securityContext"]["runAsNonRoot"] for spec in pod_specs())
    for container in containers():
        rights = container["securityContext"]
        assert rights == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {"cpu", "memory"} <= {*container["resources"]["requests"]}


def test_mounted_volumes_and_claims_are_there() -> None:
    claims = {each["metadata"]["name"] for each in EVERY if each["kind"] == "PersistentVolumeClaim"}
    for each in PLAIN:
        if each["kind"] == "StatefulSet":
            own = {claim["metadata"]["name"] for claim in each["spec"]["volumeClaimTemplates"]}
            _check_volumes(each["spec"]["template"]["spec"], own, claims)
    for group in (RAY["spec"]["headGroupSpec"], *RAY["spec"]["workerGroupSpecs"]):
        _check_volumes(group["template"]["spec"], set(), claims)


def _check_volumes(spec: dict[str, Any], own: set[str], claims: set[str]) -> None:
    volumes = spec.get("volumes", [])
    known = own | {volume["name"] for volume in volumes}
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= known
    used = [
        volume["persistentVolumeClaim"]
        for volume in volumes
        if len(volume) > 1 and "persistentVolumeClaim" in volume
    ]
    assert {claim["claimName"] for claim in used} <= claims


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("settings.yaml")), ids=lambda path: path.parent.name
)
def test_the_server_accepts_the_settings(path: Path, tmp_path: Path) -> None:
    (document,) = documents(path)
    file = tmp_path / "earshot.toml"
    file.write_text(document["data"]["earshot.toml"])
    config = load({}, file=file).config
    assert config.ice.ports
    if path.parent.name == "ray":
        assert config.asr.pool == "ray"
        host, _, port = config.cluster.address.partition(":")
        assert host == f"{RAY['metadata']['name']}-head-svc"
        gcs = RAY["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"][0]
        assert gcs["containerPort"] == int(port)


def test_every_machine_of_the_cluster_has_our_release_of_ray() -> None:
    assert f"ray[serve] =={RAY['spec']['rayVersion']}" in (ROOT / "pyproject.toml").read_text()
    assert RAY["spec"]["authOptions"] == {"mode": "token", "secretName": "ray-token"}
