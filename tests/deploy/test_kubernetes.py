"""The Kubernetes manifests: they are built by kustomize, agree with the schemas of Kubernetes and with each other, and
hand the programs settings that they take.

The schemas are those that `kubernetes-validate` carries. It has none of the kinds that operators bring (ServiceMonitor,
PrometheusRule, ScaledObject): of those the tests below look at what they must agree with.
"""

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from saros import settings
from saros.api.commands import check_host
from saros.trainer.commands import plan_of
from tests.deploy.rules import metrics_in, rules
from tests.deploy.tools import DEPLOY, output_of, program, secrets_in

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("dev", "production")
VERSIONS = ("1.30", "1.34")
OPERATORS = ("ServiceMonitor", "PrometheusRule", "ScaledObject")
WORKLOADS = {"Job": "saros-init", "StatefulSet": "saros-trainer", "Deployment": "saros-api"}

Manifest = dict[str, Any]


@cache
def built(overlay: str) -> tuple[Manifest, ...]:
    return tuple(yaml.safe_load_all(output_of(program("kustomize"), "build", KUBERNETES / "overlays" / overlay)))


def find(overlay: str, kind: str, name: str) -> Manifest:
    (found,) = [one for one in built(overlay) if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def settings_of(overlay: str) -> dict[str, str]:
    (found,) = [one["data"] for one in built(overlay) if one["kind"] == "ConfigMap"]
    assert isinstance(found, dict)
    return found


def pod_of(overlay: str, kind: str) -> Manifest:
    found = find(overlay, kind, WORKLOADS[kind])["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def environ_of(overlay: str, kind: str) -> dict[str, str]:
    """Return the variables that a container of a kind gets, but for those from Secrets."""
    (container,) = pod_of(overlay, kind)["containers"]
    own = {one["name"]: one.get("value", "saros-trainer-0") for one in container.get("env", [])}
    return {**settings_of(overlay), **own}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_they_agree_with_the_schemas(overlay: str, version: str) -> None:
    manifests = [one for one in built(overlay) if one["kind"] not in OPERATORS]
    assert {one["kind"] for one in manifests} >= {*WORKLOADS, "NetworkPolicy", "PodDisruptionBudget", "Service"}
    for one in manifests:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_wrong_one_would_be_found() -> None:
    wrong = find("dev", "Deployment", "saros-api") | {"spec": {"replicas": "two"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_may_do_nothing_that_they_need_not(overlay: str, kind: str) -> None:
    pod = pod_of(overlay, kind)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_secret_stands_in_a_file(overlay: str) -> None:
    assert all(one["kind"] != "Secret" for one in built(overlay))
    names = set(re.findall(r"SAROS_\w+", yaml.safe_dump_all(built(overlay))))
    assert not secrets_in(names)
    assert "@" not in settings_of(overlay)["SAROS_REDIS__URL"]


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_settings_are_taken(overlay: str, kind: str) -> None:
    loaded = settings.load(environ_of(overlay, kind))
    assert plan_of(loaded).model == "saros"
    if kind == "StatefulSet":
        assert loaded.trainer.instance == "saros-trainer-0"
    if kind == "Deployment":
        assert not check_host(loaded, asked=bool(loaded.api.keys_file))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_of_the_api_has_what_a_trainer_has(overlay: str) -> None:
    """docs/operations.md#at-night: `saros status`, `audit` and `rebase` are run there."""
    trainer, api = (
        plan_of(settings.load(environ_of(overlay, kind)))._replace(instance="", memory_bytes=0)
        for kind in ("StatefulSet", "Deployment")
    )
    assert trainer == api
    sources = [pod_of(overlay, kind)["containers"][0]["envFrom"] for kind in ("StatefulSet", "Deployment")]
    assert sources[0] == sources[1]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_and_services_find_their_ports(overlay: str) -> None:
    for kind, port, number in (("StatefulSet", "metrics", 9100), ("Deployment", "http", 8000)):
        (container,) = pod_of(overlay, kind)["containers"]
        assert container["ports"] == [{"name": port, "containerPort": number}]
        paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
        assert {probe["port"] for probe in paths.values()} == {port}
        assert find(overlay, "Service", WORKLOADS[kind])["spec"]["ports"][0]["targetPort"] == port
        variable = "SAROS_TRAINER__METRICS_PORT" if kind == "StatefulSet" else "SAROS_API__PORT"
        assert environ_of(overlay, kind)[variable] == str(number)
    (api,) = pod_of(overlay, "Deployment")["containers"]
    assert api["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert api["livenessProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_find_their_pods(overlay: str) -> None:
    pods = [find(overlay, kind, name)["spec"]["template"] for kind, name in WORKLOADS.items()]
    labels = {name: pod["metadata"]["labels"] for name, pod in zip(WORKLOADS.values(), pods, strict=True)}
    model = settings_of(overlay)["SAROS_MODEL__NAME"]
    assert all(one["app.kubernetes.io/instance"] == model for one in labels.values())
    for one in built(overlay):
        spec, name = one.get("spec", {}), one["metadata"]["name"]
        if one["kind"] in ("Service", "PodDisruptionBudget", "StatefulSet", "Deployment"):
            selector = spec["selector"].get("matchLabels", spec["selector"])
            assert [who for who, has in labels.items() if selector.items() <= has.items()] == [name], one["kind"]
        if one["kind"] == "NetworkPolicy":
            found = {who for who, has in labels.items() if spec["podSelector"]["matchLabels"].items() <= has.items()}
            assert found == ({name} if name in labels else set(labels)), name


def test_production_grows_with_the_load_and_no_further_than_it_helps() -> None:
    environ = settings_of("production")
    plan = plan_of(settings.load(environ))
    scaled = find("production", "ScaledObject", "saros-trainer")
    assert (scaled["apiVersion"], scaled["spec"]["scaleTargetRef"]["kind"]) == ("keda.sh/v1alpha1", "StatefulSet")
    assert scaled["spec"]["maxReplicaCount"] == plan.partitions
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    metadata = trigger["metadata"]
    (lag,) = metrics_in(metadata["query"])
    assert metadata["query"] == f'{lag}{{model="{plan.model}"}}'
    assert lag in {rule["record"] for rule in rules("record")}
    (late,) = [alert["expr"] for alert in rules("alert") if alert["alert"] == "SarosLagHigh"]
    least, seconds = scaled["spec"]["minReplicaCount"], int(metadata["threshold"])
    assert late == f"{lag} > 30", "the alert asks for the same"
    assert least < 30 / seconds < plan.partitions, "it has grown before somebody is woken, and not to all there are"
    assert all(isinstance(value, str) for value in metadata.values())
    target = find("production", "HorizontalPodAutoscaler", "saros-api")["spec"]["scaleTargetRef"]
    for kind, name in (("Deployment", target["name"]), ("StatefulSet", scaled["spec"]["scaleTargetRef"]["name"])):
        assert "replicas" not in find("production", kind, name)["spec"], "or each apply would undo what was scaled"


def test_production_has_an_image_that_nodes_can_pull() -> None:
    images = {pod_of("production", kind)["containers"][0]["image"] for kind in WORKLOADS}
    assert len(images) == 1
    assert re.fullmatch(r"[\w.]+/saros:\d+\.\d+\.\d+", images.pop()), "a bare name would be one of docker.io"


def test_tls_is_a_line_away(tmp_path: Path) -> None:
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    production = tmp_path / "kubernetes" / "overlays" / "production"
    text = (production / "kustomization.yaml").read_text()
    assert text.count("# - ../../components/tls") == 1
    (production / "kustomization.yaml").write_text(text.replace("# - ../../components/tls", "- ../../components/tls"))
    manifests = list(yaml.safe_load_all(output_of(program("kustomize"), "build", production)))
    (settled,) = [one["data"] for one in manifests if one["kind"] == "ConfigMap"]
    workloads = [one for one in manifests if one["kind"] in WORKLOADS]
    assert len(workloads) == len(WORKLOADS)
    for one in workloads:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        pod = one["spec"]["template"]["spec"]
        (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "tls"]
        assert volume["secret"] == {"secretName": "saros-tls", "defaultMode": 0o440}
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "tls"]
        assert settled["SAROS_REDIS__CA_FILE"] == f"{mount['mountPath']}/ca.crt"
    assert settings.load(settled).redis.ca_file


def test_production_is_watched_by_the_rules_of_deploy_prometheus() -> None:
    for name, port in (("saros-trainer", "metrics"), ("saros-api", "http")):
        monitor, service = find("production", "ServiceMonitor", name), find("production", "Service", name)
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] == port == service["spec"]["ports"][0]["name"]
        job, model = endpoint["relabelings"]
        assert job == {"targetLabel": "job", "replacement": name}
        assert model["targetLabel"] == "model"
        assert "release" in monitor["metadata"]["labels"], "or the chart kube-prometheus-stack passes it over"
    for name in ("recording", "alerts"):
        expected = yaml.safe_load((DEPLOY / "prometheus" / "rules" / f"{name}.yml").read_text())
        found = find("production", "PrometheusRule", f"saros-{name}")
        assert found["spec"] == expected, "stale: `make rules`"
        assert "release" in found["metadata"]["labels"]
