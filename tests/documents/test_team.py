"""The example of a team's shared servers: its manifests are valid, and agree with the tap.

Kubernetes' own resources are checked against the models of its API 1.37 (`lightkube-models`), those
of ToolHive against `support/toolhive.py`. No cluster has seen them.
"""

import copy
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml
from lightkube.models import apps_v1, core_v1, networking_v1

from capd.adapters.servers.http.guarded_client import CONNECT_TIMEOUT
from documents import pages
from support import toolhive

TEAM = pages.ROOT / "packaging/team"
TAP = TEAM / "tap/capabilities/tracker"
PAGE = pages.DOCS / "team.md"
KINDS: dict[tuple[str, str], type] = {
    ("v1", "Namespace"): core_v1.Namespace,
    ("v1", "Service"): core_v1.Service,
    ("apps/v1", "Deployment"): apps_v1.Deployment,
    ("networking.k8s.io/v1", "Ingress"): networking_v1.Ingress,
    ("networking.k8s.io/v1", "NetworkPolicy"): networking_v1.NetworkPolicy,
    (toolhive.API, "MCPOIDCConfig"): toolhive.OIDCConfig,
    (toolhive.API, "MCPServer"): toolhive.Server,
}


def documents(name: str) -> list[dict[str, Any]]:
    """Return the resources of one file of manifests."""
    return list(yaml.safe_load_all((TEAM / name).read_text("utf-8")))


def manifests() -> list[Any]:
    """Return each resource of the example, by its file, kind and name."""
    return [
        pytest.param(each, id=f"{path.name}-{each['kind']}-{each['metadata']['name']}")
        for path in sorted(TEAM.glob("*.yaml"))
        for each in documents(path.name)
    ]


def without_nothing(value: Any) -> Any:
    """Return a value without null members: a model has them for values that are not set."""
    if isinstance(value, dict):
        return {key: without_nothing(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nothing(each) for each in value]
    return value


def check(manifest: dict[str, Any]) -> None:
    """Refuse a field that the resource's kind does not have, lacks, or has of another type.

    Raises:
        AssertionError: there is a field that the models do not know.
        msgspec.ValidationError: a field is missing, or of another type.
    """
    model = KINDS[manifest["apiVersion"], manifest["kind"]]
    check_as(manifest, model)
    if model is toolhive.Server:
        template = manifest["spec"]["podTemplateSpec"]
        check_as(template, core_v1.PodTemplateSpec)


def check_as(value: dict[str, Any], model: type) -> None:
    # The models of Kubernetes leave out what they do not know, so it is missed afterwards.
    read: Any = msgspec.convert(value, model)
    assert without_nothing(msgspec.to_builtins(read)) == value


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field that the API defines; labels and resources are free."""
    if isinstance(value, dict):
        for key, each in value.items():
            if "/" not in key:
                yield (*path, key)
            if key not in {"requests", "limits"}:
                yield from fields(each, (*path, key))
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from fields(each, (*path, at))


@pytest.mark.parametrize("manifest", manifests())
def test_a_manifest_has_the_fields_of_its_kind_and_no_others(manifest: dict[str, Any]) -> None:
    check(manifest)


@pytest.mark.parametrize("manifest", manifests())
def test_every_misspelled_field_is_noticed(manifest: dict[str, Any]) -> None:
    missed = []

    for *path, last in fields(manifest):
        wrong = copy.deepcopy(manifest)
        inner: Any = wrong
        for step in path:
            inner = inner[step]
        inner[f"{last}x"] = inner.pop(last)
        try:
            check(wrong)
        except (AssertionError, KeyError, msgspec.ValidationError):
            continue
        missed.append((*path, last))

    assert missed == []


def of_kind(name: str, kind: str) -> Any:
    """Return the one resource of a kind in a file."""
    [found] = [each for each in documents(name) if each["kind"] == kind]
    return found


def pods() -> list[Any]:
    """Return the pod specification of each way of running the server."""
    return [
        of_kind("server.yaml", "Deployment")["spec"]["template"]["spec"],
        of_kind("toolhive.yaml", "MCPServer")["spec"]["podTemplateSpec"]["spec"],
    ]


@pytest.mark.parametrize("pod", pods(), ids=["server.yaml", "toolhive.yaml"])
def test_a_pod_is_within_the_restricted_pod_security_standard(pod: Any) -> None:
    [container] = pod["containers"]
    security = container["securityContext"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    # These three are of our own: the standard does not ask for them.
    assert security["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert [list(each)[1:] for each in pod["volumes"]] == [["emptyDir"]]


def test_the_plain_server_has_limits_and_probes_of_a_port_that_it_has() -> None:
    [container] = of_kind("server.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]

    assert {"cpu", "memory"} == set(container["resources"]["limits"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"]["port"] == port["name"]


def test_whatever_selects_the_pod_selects_it() -> None:
    deployment = of_kind("server.yaml", "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]

    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert of_kind("server.yaml", "Service")["spec"]["selector"].items() <= labels.items()
    policy = of_kind("server.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", ["server.yaml", "toolhive.yaml"])
def test_all_is_in_one_namespace_and_a_host_has_a_certificate(name: str) -> None:
    [space] = [each["metadata"]["name"] for each in documents(name) if each["kind"] == "Namespace"]
    ingress = of_kind(name, "Ingress")["spec"]

    others = [each for each in documents(name) if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in others} == {space}
    assert [each["host"] for each in ingress["rules"]] == ingress["tls"][0]["hosts"]


def test_the_port_leads_from_the_ingress_to_the_container() -> None:
    backend = of_kind("server.yaml", "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    service = of_kind("server.yaml", "Service")
    [port] = service["spec"]["ports"]
    [container] = of_kind("server.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    policy = of_kind("server.yaml", "NetworkPolicy")["spec"]["ingress"]

    assert backend["service"]["name"] == service["metadata"]["name"]
    assert backend["service"]["port"]["name"] == port["name"]
    assert port["targetPort"] == container["ports"][0]["name"]
    assert policy[0]["ports"] == [{"protocol": "TCP", "port": port["targetPort"]}]


def test_the_port_leads_from_the_ingress_to_the_proxy_of_toolhive() -> None:
    backend = of_kind("toolhive.yaml", "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    server = msgspec.convert(of_kind("toolhive.yaml", "MCPServer"), toolhive.Server)
    [container] = of_kind("server.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]

    assert backend["service"]["name"] == server.service
    assert backend["service"]["port"]["number"] == server.spec.proxyPort
    assert server.spec.mcpPort == container["ports"][0]["containerPort"]
    assert server.spec.oidcConfigRef is not None
    config = of_kind("toolhive.yaml", "MCPOIDCConfig")
    assert server.spec.oidcConfigRef.name == config["metadata"]["name"]


def definition(provider: str) -> dict[str, Any]:
    """Return the one server of a provider of the tap."""
    [server] = tomllib.loads((TAP / f"{provider}.toml").read_text("utf-8"))["mcp"]["servers"]
    assert isinstance(server, dict)
    return server


def test_the_tap_names_the_address_of_the_manifests() -> None:
    url = definition("default")["url"]
    [container] = of_kind("server.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    config = of_kind("toolhive.yaml", "MCPOIDCConfig")["spec"]["inline"]
    reference = of_kind("toolhive.yaml", "MCPServer")["spec"]["oidcConfigRef"]

    assert urlsplit(url).scheme == "https"
    for name in ("server.yaml", "toolhive.yaml"):
        [rule] = of_kind(name, "Ingress")["spec"]["rules"]
        assert rule["host"] == urlsplit(url).hostname
    # The audience of a token is the address for which capd asked for it.
    assert env["OIDC_AUDIENCE"] == reference["audience"] == reference["resourceUrl"] == url
    assert env["OIDC_ISSUER"] == config["issuer"]
    assert definition("clusters")["urls"][0] == url


def test_the_forwarded_server_is_that_of_the_manifests() -> None:
    service = of_kind("server.yaml", "Service")
    [port] = service["spec"]["ports"]
    path = urlsplit(definition("default")["url"]).path

    metadata = service["metadata"]
    expected = f"{metadata['namespace']}/{metadata['name']}:{port['port']}{path}"
    assert definition("forward")["kubernetes"] == expected


def test_the_tap_is_accepted_as_it_stands() -> None:
    with tempfile.TemporaryDirectory() as home:
        said = subprocess.run(
            [sys.executable, "-P", "-m", "capd_client.entry", "check", str(TEAM / "tap")],
            env={**os.environ, "CAPD_HOME": home},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (said.returncode, said.stdout) == (0, "tap: 1 routable\n0 errors, 0 warnings\n")


@pytest.mark.parametrize("provider", ["default", "clusters", "forward"])
def test_the_page_shows_the_files_of_the_tap(provider: str) -> None:
    shown = "\n".join(line for _, line in pages.blocks(PAGE))

    assert (TAP / f"{provider}.toml").read_text("utf-8").strip() in shown


def test_the_page_shows_the_triggers_of_the_tap() -> None:
    shown = "\n".join(line for _, line in pages.blocks(PAGE))

    assert (TAP / "config.toml").read_text("utf-8").strip() in shown


def test_the_page_says_how_long_a_call_waits_for_a_cluster_that_does_not_answer() -> None:
    words = " ".join(PAGE.read_text("utf-8").split())

    assert f"after {CONNECT_TIMEOUT:g} s where nothing answers" in words
