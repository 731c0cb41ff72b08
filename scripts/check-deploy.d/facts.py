"""Facts that lie in several files of deploy/ and must agree: no schema sees them.

    facts.py keda           prints the KEDA resources as a JSON array
    facts.py agree          checks the facts; prints each, exits 1 if one does not hold
"""

import configparser
import json
import pathlib
import re
import sys

import ruamel.yaml

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# After the drain: releasing messages (4 s), the final heartbeat (2 s), changes of operators (10 s), the last spans (5 s). The worker must not be killed before.
MARGIN_SECONDS = 22
UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}


def read_yaml(path):
    return ruamel.yaml.YAML(typ="safe").load((DEPLOY / path).read_text())


def read_toml(path):
    return tomllib.loads(path.read_text())


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)\s*([a-z]+)", str(text)).groups()
    return int(number) * UNITS[unit]


def keda():
    folder = DEPLOY / "kubernetes" / "keda"
    return [read_yaml(folder / name) for name in read_yaml(folder / "kustomization.yaml")["resources"]]


def unit_file(path):
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string((DEPLOY / path).read_text())
    return parser


def compiled_in():
    """Folders and files outside of src that the program's code embeds. Tests are at the end of a file and are not part of an image."""
    for source in sorted([*(ROOT / "src").rglob("*.rs"), *(ROOT / "crates").glob("*/src/**/*.rs")]):
        text = source.read_text().split("\n#[cfg(test)]\nmod ")[0]
        for path in re.findall(r'include_(?:str|bytes|dir)!\(\s*"([^"]+)"', text):
            yield (source.parent / path).resolve().relative_to(ROOT).parts[0]
        # rust-embed's and askama's folders are relative to the package.
        for path in re.findall(r'#\[folder = "([^"]+)"\]', text):
            yield pathlib.PurePath(path).parts[0]


def shards(queue):
    """The storage queues of a declared queue. With several shards none has the declared name."""
    count = queue.get("shards", 1)
    return [queue["name"]] if count == 1 else [f"{queue['name']}-{shard:02}" for shard in range(count)]


def facts():
    version = read_toml(ROOT / "Cargo.toml")["workspace"]["package"]["version"]
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    compose = read_yaml("docker/compose.yaml")
    compose_config = read_toml(DEPLOY / "docker" / "config" / "default.toml")
    config = read_toml(DEPLOY / "kubernetes" / "common" / "default.toml")
    deployment = read_yaml("kubernetes/worker/deployment.yaml")
    job = read_yaml("kubernetes/migrate/job.yaml")
    unit = unit_file("systemd/evenkeel.service")
    service = unit["Service"]
    pod, job_pod = deployment["spec"]["template"]["spec"], job["spec"]["template"]["spec"]
    scaled, authentication = sorted(keda(), key=lambda resource: resource["kind"])
    triggers = scaled["spec"]["triggers"]
    trigger = triggers[0]
    worker = compose["services"]["worker"]

    drain = seconds(config["worker"]["drain"])
    yield "the pod outlives the drain", pod["terminationGracePeriodSeconds"] >= drain + MARGIN_SECONDS
    drain = seconds(compose_config["worker"]["drain"])
    yield "the container outlives the drain", seconds(worker["stop_grace_period"]) >= drain + MARGIN_SECONDS
    shipped = ROOT / "config" / "default.toml"
    drain = seconds(read_toml(shipped)["worker"]["drain"]) if shipped.exists() else 25
    yield "the service outlives the drain", seconds(service["TimeoutStopSec"]) >= drain + MARGIN_SECONDS
    # docs/operations.md, exit codes: 1, 4 and 5 mean a restart, however often.
    yield "the service is always restarted, except after a configuration error", (
        unit["Unit"]["StartLimitIntervalSec"] == "0" and service["Restart"] == "on-failure" and service["RestartPreventExitStatus"] == "2"
    )

    yield "the Dockerfile has Cargo.toml's version", f"ARG VERSION={version}\n" in dockerfile
    yield "compose.yaml has Cargo.toml's version", worker["image"] == f"evenkeel:{version}"
    for name in ("worker", "migrate"):
        image = read_yaml(f"kubernetes/{name}/kustomization.yaml")["images"][0]
        yield f"kubernetes/{name} has Cargo.toml's version", image["newTag"] == version
    rust = read_toml(ROOT / "Cargo.toml")["workspace"]["package"]["rust-version"]
    yield "the image is built with the declared Rust", f"RUST_IMAGE=rust:{rust}." in dockerfile
    images = re.findall(r"^ARG \w+_IMAGE=(\S+)$", dockerfile, re.MULTILINE) + [compose["services"]["azurite"]["image"]]
    yield "every base image is pinned to a version and its digest", all(
        re.search(r":\d+\.\d+\.?\d*[a-z-]*@sha256:[0-9a-f]{64}$", image) for image in images
    )

    copied = set(re.findall(r"^COPY (\S+) ", dockerfile.split("\nFROM ")[1], re.MULTILINE)) | {"Cargo.toml", "Cargo.lock"}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    yield "all embedded files are copied into the build", set(compiled_in()) <= copied
    yield "all copied files exist, and .dockerignore does not exclude them", all(
        (ROOT / name).exists() and any(f"{name}/".startswith(f"{folder}/") for folder in allowed) for name in copied
    )
    manifests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "crates").glob("*/Cargo.toml")}
    yield "the manifest of every crate is copied before the sources", manifests <= copied

    for place, settings in (("docker", compose_config), ("kubernetes", config)):
        yield f"{place}: reachable in its container, by token", (
            settings["http"]["listen"] == "0.0.0.0:9464" and settings["http"]["token_env"] == "EVENKEEL_TOKEN"
        )
        yield f"{place}: only the migration migrates", settings["migrate"]["auto"] is False
    environment = worker["environment"]
    yield "compose.yaml sets the variables that its configuration names", {
        compose_config["accounts"]["main"]["connection_string_env"],
        compose_config["http"]["token_env"],
    } <= set(environment)
    identity = read_yaml("kubernetes/common/serviceaccount.yaml")["metadata"]
    account = config["accounts"]["main"]
    yield "the workers sign in with the service account's identity", (
        (account["auth"], account["credential"]) == ("entra", "workload_identity")
        and "azure.workload.identity/client-id" in identity["annotations"]
    )
    for name, spec in (("deployment", pod), ("job", job_pod)):
        container = spec["containers"][0]
        given = {variable["name"] for variable in container["env"]}
        yield f"the {name} sets the variables that its configuration names", config["http"]["token_env"] in given
        labels = (deployment if name == "deployment" else job)["spec"]["template"]["metadata"]["labels"]
        yield f"the {name} has its workload identity, and no secret of the account", (
            labels["azure.workload.identity/use"] == "true"
            and spec["serviceAccountName"] == identity["name"]
            and not any(variable.startswith("AZURE_") for variable in given)
        )
        secrets = read_yaml("kubernetes/secret.example.yaml")
        asked = [variable["valueFrom"]["secretKeyRef"] for variable in container["env"] if "valueFrom" in variable]
        yield f"the {name}'s secrets are in the example", all(
            ref["name"] == secrets["metadata"]["name"] and ref["key"] in secrets["stringData"] for ref in asked
        )
        # The requirements of the namespace's "restricted" pod security standard, and a read-only root file system.
        context = container["securityContext"]
        yield f"the {name} meets the restricted standard", (
            context["allowPrivilegeEscalation"] is False
            and context["readOnlyRootFilesystem"] is True
            and context["capabilities"] == {"drop": ["ALL"]}
            and spec["securityContext"]["runAsNonRoot"] is True
            and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        )
        user = re.search(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE).groups()
        yield f"the {name} runs as the image's user", user == (
            str(spec["securityContext"]["runAsUser"]),
            str(spec["securityContext"]["runAsGroup"]),
        )

    yield "the scaler scales the deployment", scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    yield "the scaler watches every shard of every job queue", sorted(
        one["metadata"]["queueName"] for one in triggers
    ) == sorted(name for queue in config["queues"] for name in shards(queue))
    yield "a worker's share is its concurrency", trigger["metadata"]["queueLength"] == str(config["queues"][0]["concurrency"])
    yield "hidden messages count as work", all(one["metadata"]["queueLengthStrategy"] == "all" for one in triggers)
    yield "the scaler signs in as declared, to the workers' account", authentication["spec"]["podIdentity"]["provider"] == "azure-workload" and all(
        one["authenticationRef"]["name"] == authentication["metadata"]["name"] and one["metadata"]["accountName"] == account["name"]
        for one in triggers
    )
    azurite = json.loads((ROOT / "tests" / "azurite" / "package.json").read_text())["dependencies"]["azurite"]
    yield "compose.yaml uses the Azurite version of the tests", f":{azurite}@" in compose["services"]["azurite"]["image"]
    policy = read_yaml("kubernetes/worker/networkpolicy.yaml")["spec"]
    yield "only named pods reach HTTP", all(rule.get("from") for rule in policy["ingress"])


def main():
    if sys.argv[1:] == ["keda"]:
        json.dump(keda(), sys.stdout)
        return 0
    broken = 0
    for fact, holds in facts():
        print(f"{'ok  ' if holds else 'FAIL'} {fact}")
        broken += not holds
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
