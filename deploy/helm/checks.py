"""The checks of the Helm chart. `test.py` starts them where helm and the packages are.

A check is a function whose name is the sentence that must be true; `attempt` runs it and counts. Those of a file of `ci/` take
its name and the objects that it renders to."""

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

from refused import REFUSED

HERE = Path(__file__).resolve().parent
CHART = HERE / "llmrt"
ROOT = HERE.parents[1]
HELM = os.environ["HELM"]

# The oldest Kubernetes of Chart.yaml, one between, the newest with schemas.
VERSIONS = ["1.30.0", "1.35.0", "1.37.0"]
# Files that need a newer one.
OLDEST = {"image-volume": "1.35.0"}

OWN_SCHEMAS = {
    kind: json.loads((HERE / f"schemas/{kind.lower()}.json").read_text())
    for kind in ["RayService", "ServiceMonitor", "PodMonitor", "ServeConfig"]
}
DEPLOYMENTS = ["cpu", "nvidia", "ascend", "image-volume", "everything-on"]
RAYS = ["ray-cpu", "ray-nvidia", "ray-ascend"]

results = {"passed": 0, "failed": 0}


def report(name, problem=None):
    """Counts a check; a problem is a text."""
    results["failed" if problem else "passed"] += 1
    if problem:
        print(f"FAILED {name}\n    {problem}".rstrip())


def helm(*words):
    ended = subprocess.run([HELM, *map(str, words)], capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def template(name, version="1.35.0", chart=CHART):
    """The objects of a file of `ci/`, or of the chart's own values: new ones at each call."""
    return [item for item in yaml.load_all(rendered(name, version, chart), yaml.SafeLoader) if item]


@functools.cache
def rendered(name, version, chart):
    values = ["--values", HERE / f"ci/{name}.yaml"] if name else []
    code, out, err = helm("template", "demo", chart, "--kube-version", version, *values)
    if code != 0:
        raise AssertionError(f"helm template {name}: {err.strip()}")
    return out


def only(objects, kind):
    found = [item for item in objects if item["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}, expected 1"
    return found[0]


def container(objects):
    return only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]


def pod(objects):
    return only(objects, "Deployment")["spec"]["template"]["spec"]


def ray_groups(objects):
    """The group of the head and that of the workers; without workers the head twice."""
    cluster = only(objects, "RayService")["spec"]["rayClusterConfig"]
    [workers] = cluster.get("workerGroupSpecs") or [cluster["headGroupSpec"]]
    return cluster["headGroupSpec"], workers


def serve_config(objects):
    config = yaml.safe_load(only(objects, "RayService")["spec"]["serveConfigV2"])
    [application] = config["applications"]
    return config, application


def flags_of_serve():
    """The long flags that `llmrt serve --help` lists."""
    text = (ROOT / "cli/src/help/serve.txt").read_text()
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z0-9-]*)", text, re.MULTILINE))


def flag(words, name):
    """The value of `--name=value`."""
    values = [word.split("=", 1)[1] for word in words if word.startswith(f"--{name}=")]
    assert len(values) == 1, f"--{name} is there {len(values)} times: {words}"
    return values[0]


def pods(objects):
    """Every pod's spec, with a name of where it is."""
    for item in objects:
        if item["kind"] == "Deployment":
            yield "Deployment", item["spec"]["template"]
        elif item["kind"] == "Pod":
            yield "test", item
        elif item["kind"] == "RayService":
            head, workers = ray_groups([item])
            yield "head", head["template"]
            yield "workers", workers["template"]


def equal(found, expected, what):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


# Schemas


def schema_problem(item, version):
    """Why an object does not fit; None: it does."""
    try:
        if item["kind"] in OWN_SCHEMAS:
            jsonschema.Draft7Validator(OWN_SCHEMAS[item["kind"]]).validate(item)
            if item["kind"] == "RayService":
                jsonschema.Draft7Validator(OWN_SCHEMAS["ServeConfig"]).validate(serve_config([item])[0])
                for _, inner in pods([item]):
                    wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": inner}
                    kubernetes_validate.validate(wrapped, version, strict=True)
        else:
            kubernetes_validate.validate(item, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as e:
        return f"{'.'.join(map(str, e.absolute_path))}: {e.message[:300]}"
    except kubernetes_validate.SchemaNotFoundError as e:
        return e.message
    return None


def check_schemas(name, version, objects):
    for item in objects:
        report(f"{name}, Kubernetes {version}: {item['kind']} fits its schema", schema_problem(item, version))
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    report(f"{name}, {version}: names are unique", None if len(set(names)) == len(names) else str(names))


def check_that_schemas_refuse():
    """The schemas themselves: a misspelt field in each kind of object is found."""
    deployment = only(template("cpu"), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    report("a misspelt field of a container is found", schema_problem(deployment, "1.35.0") is None and "it is not")
    monitored, ray = template("ray-nvidia"), template("ray-ascend")
    only(monitored, "PodMonitor")["spec"]["endpoints"] = []
    report("one of a PodMonitor", schema_problem(only(monitored, "PodMonitor"), "1.35.0") is None and "it is not")
    ray_groups(ray)[1]["template"]["spec"]["containers"][0]["resource"] = {}
    report("one of a pod in a RayService", schema_problem(only(ray, "RayService"), "1.35.0") is None and "it is not")
    args = template("ray-cpu")
    spec = only(args, "RayService")["spec"]
    spec["serveConfigV2"] = spec["serveConfigV2"].replace("serve_args", "server_args")
    report("one of Ray's arguments", schema_problem(only(args, "RayService"), "1.35.0") is None and "it is not")


# What objects mean


def probes_wait_for_the_load_and_use_the_health_route(name, objects):
    main = container(objects)
    values = {key: main[f"{key}Probe"] for key in ["startup", "readiness", "liveness"]}
    scheme = "HTTPS" if name == "everything-on" else "HTTP"
    for probe in values.values():
        equal(probe["httpGet"], {"path": "/health", "port": "http", "scheme": scheme}, "httpGet")
    startup = values["startup"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600, "a large model needs more than 10 minutes"
    liveness, readiness = (values[k]["periodSeconds"] * values[k]["failureThreshold"] for k in ["liveness", "readiness"])
    assert liveness > readiness, "a pod leaves the service before it is restarted"
    [port] = main["ports"]
    equal((port["name"], str(port["containerPort"])), ("http", flag(main["args"], "port")), "port")


def running_requests_end_before_the_kill(name, objects):
    main = container(objects)
    delay, grace = main["lifecycle"]["preStop"]["sleep"]["seconds"], int(flag(main["args"], "grace"))
    total = pod(objects)["terminationGracePeriodSeconds"]
    assert total > delay + grace, f"{total} s, with {delay} s and {grace} s before the end"


def flags_exist(name, objects):
    words = container(objects)["args"]
    equal(words[0], "serve", "command")
    known = flags_of_serve()
    assert {"--grace", "--backend"} <= known, "serve.txt is not understood"
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0] not in known]
    assert not unknown, f"`llmrt serve` has no {unknown}"
    repeated = [word.split("=")[0] for word in words if word.startswith("-")]
    assert len(set(repeated)) == len(repeated), f"a flag is there twice: {words}"


def pods_are_restricted(name, objects):
    for where, template in pods(objects):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        equal(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}, where)
        assert not any(spec.get(key) for key in ["hostNetwork", "hostPID", "hostIPC"]), where
        own = [c for c in spec["containers"] + spec.get("initContainers", []) if c["name"] != "warm"]
        for one in own:
            security = one["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], (where, one["name"])
            equal(security["capabilities"], {"drop": ["ALL"]}, where)
            assert not security.get("privileged"), where


def mounts_have_volumes(name, objects):
    for where, template in pods(objects):
        spec = template["spec"]
        volumes = [volume["name"] for volume in spec.get("volumes", [])]
        assert len(set(volumes)) == len(volumes), f"{where}: {volumes}"
        for one in spec["containers"] + spec.get("initContainers", []):
            for mount in one.get("volumeMounts", []):
                assert mount["name"] in volumes, f"{where}: {one['name']} mounts {mount['name']}"
        for one in spec["containers"]:
            writable = {m["mountPath"] for m in one.get("volumeMounts", []) if not m.get("readOnly")}
            home = [e["value"] for e in one["env"] if e["name"] == "HOME"]
            assert where == "test" or writable >= {"/tmp", *home}, f"{where}: {writable}"


def selectors_match(name, objects):
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for item in objects:
        spec = item.get("spec", {})
        if item["kind"] in ["Deployment", "PodDisruptionBudget"]:
            selector = spec["selector"]["matchLabels"]
        elif item["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        elif item["kind"] == "Service":
            selector = spec["selector"]
            equal(spec["ports"][0]["targetPort"], "http", "port of the service")
        elif item["kind"] == "ServiceMonitor":
            selector, labels_ = spec["selector"]["matchLabels"], only(objects, "Service")["metadata"]["labels"]
            assert selector.items() <= labels_.items(), f"{selector}: {labels_}"
            continue
        else:
            continue
        assert selector.items() <= labels.items(), f"{item['kind']}: {selector}"
    test = only(objects, "Pod")["metadata"]["labels"] if name != "everything-on" else {}
    assert not only(objects, "Service")["spec"]["selector"].items() <= test.items(), "the service selects the test's pod"


def devices_are_requested(name, objects):
    resource, backend, count = {
        "cpu": (None, "cpu", 0),
        "nvidia": ("nvidia.com/gpu", "cuda", 2),
        "ascend": ("huawei.com/Ascend310P", "cann", 1),
        "image-volume": ("huawei.com/Ascend910", "cann", 1),
        "everything-on": ("nvidia.com/mig-1g.10gb", "cuda:0", 1),
    }[name]
    main = container(objects)
    equal(flag(main["args"], "backend"), backend, "--backend")
    extended = {k: v for k, v in main["resources"].get("limits", {}).items() if "/" in k}
    equal(extended, {resource: count} if resource else {}, "devices")
    runtime = {"nvidia": "nvidia", "image-volume": "ascend"}.get(name)
    equal(pod(objects).get("runtimeClassName"), runtime, "runtimeClassName")


def check_meanings():
    checks = [
        probes_wait_for_the_load_and_use_the_health_route,
        running_requests_end_before_the_kill,
        flags_exist,
        pods_are_restricted,
        mounts_have_volumes,
        selectors_match,
        devices_are_requested,
    ]
    for name in DEPLOYMENTS:
        for check in checks:
            attempt(f"{name}: {check.__name__}", check, name, template(name))
    for name in RAYS:
        for check in [pods_are_restricted, mounts_have_volumes, ray_serves, ray_has_devices]:
            attempt(f"{name}: {check.__name__}", check, name, template(name))
    alone = [defaults, nvidia, ascend, image_volume, everything, pulls, a_head_alone_has_no_workers, names_are_short, notes]
    for check in alone:
        attempt(check.__name__, check)


def attempt(name, check, *args):
    try:
        check(*args)
    except (AssertionError, KeyError, IndexError, ValueError, OSError, subprocess.SubprocessError, yaml.YAMLError) as e:
        report(name, f"{type(e).__name__}: {e}")
    else:
        report(name)


def ray_serves(name, objects):
    assert not [o for o in objects if o["kind"] in ["Deployment", "Service"]], "the Deployment is there, too"
    config, application = serve_config(objects)
    equal(application["import_path"], "llmrt.ray:app", "import_path")
    common = {"grace": 30, "num_cpus": 2}
    model = {"model": "/models/chat.gguf"}
    more = {"serve_args": ["small=/models/small.gguf"], "target_requests": 16}
    args, workers_range = {
        "ray-cpu": (
            {"backend": "cpu", "replicas": {"min": 1, "max": 4}, "num_cpus": 3, "serve_args": ["--parallel", "16"]},
            (1, 4),
        ),
        "ray-nvidia": ({"backend": "cuda", "replicas": {"min": 2, "max": 2}, **model, **more}, (1, 1)),
        "ray-ascend": ({"backend": "cann", "replicas": {"min": 1, "max": 2}, "resources": {"NPU": 2}, **model}, (1, 2)),
    }[name]
    equal(application["args"], {**common, **args}, "args")
    unknown = set(application["args"]) - fields_of_app()
    assert not unknown, f"llmrt.ray:app has no {unknown}"
    words = [word for word in args.get("serve_args", []) if word.startswith("-")]
    assert set(words) <= flags_of_serve(), f"`llmrt serve` lacks one of {words}"
    head, workers = ray_groups(objects)
    equal((workers["minReplicas"], workers["maxReplicas"]), workers_range, "workers")
    scales = args["replicas"]["min"] != args["replicas"]["max"]
    cluster = only(objects, "RayService")["spec"]["rayClusterConfig"]
    equal(cluster.get("enableInTreeAutoscaling", False), scales, "autoscaling")
    equal("serviceAccountName" in head["template"]["spec"], not scales, "the autoscaler's account is KubeRay's")
    for group in [head, workers]:
        assert "app.kubernetes.io/name" not in group["template"]["metadata"]["labels"], "KubeRay's services select by it"
        ports = {port["name"]: port["containerPort"] for port in group["template"]["spec"]["containers"][0]["ports"]}
        equal(ports["serve"], config["http_options"]["port"], "port of Serve")
        equal(str(ports["metrics"]), group["rayStartParams"]["metrics-export-port"], "port of metrics")
    if name == "ray-nvidia":
        monitor = only(objects, "PodMonitor")["spec"]
        labels = workers["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items(), "PodMonitor"
        paths = {endpoint["port"]: endpoint.get("path") for endpoint in monitor["podMetricsEndpoints"]}
        equal(paths, {"metrics": None, "serve": "/metrics"}, "endpoints")
        env = {e["name"]: e for e in workers["template"]["spec"]["containers"][0]["env"]}
        equal(env["LLMRT_API_KEY"]["valueFrom"]["secretKeyRef"]["name"], "llmrt-key", "key")


def fields_of_app():
    """The arguments of llmrt.ray:app, as its source names them."""
    tree = ast.parse((ROOT / "runtime/python/python/llmrt/ray/_args.py").read_text())
    [app] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AppArgs"]
    return {node.target.id for node in app.body if isinstance(node, ast.AnnAssign)}


def ray_has_devices(name, objects):
    # Resource, parameters of `ray start`, whether the head runs a replica.
    resource, params, on_head = {
        "ray-cpu": ({}, {}, False),
        "ray-nvidia": ({"nvidia.com/gpu": 1}, {"num-gpus": "1"}, True),
        "ray-ascend": ({"huawei.com/Ascend910": 2}, {"resources": "'{\"NPU\":2}'"}, False),
    }[name]
    head, workers = ray_groups(objects)
    equal(only(objects, "RayService")["spec"]["excludeHeadPodFromServeSvc"], not on_head, "head in the service")
    for group, has in [(workers, True), (head, on_head)]:
        main = group["template"]["spec"]["containers"][0]
        extended = {k: v for k, v in main["resources"].get("limits", {}).items() if "/" in k}
        equal(extended, resource if has else {}, "devices")
        expected = params if has else {"num-cpus": "0", "num-gpus": "0"}
        assert expected.items() <= group["rayStartParams"].items(), group["rayStartParams"]
        equal("set_env.sh" in "".join(main.get("command", [])), has and name == "ray-ascend", "the toolkit's script")


def a_head_alone_has_no_workers():
    words = ["--set", "ray.enabled=true,device.kind=ascend", "--set", "resources.requests.cpu=2500m"]
    code, out, err = helm("template", "demo", CHART, "--kube-version", "1.35.0", *words)
    equal(code, 0, err)
    objects = [item for item in yaml.safe_load_all(out) if item]
    ray = only(objects, "RayService")
    assert "workerGroupSpecs" not in ray["spec"]["rayClusterConfig"], "there are workers"
    equal(serve_config(objects)[1]["args"]["num_cpus"], 2, "whole CPUs of 2500m")
    equal(schema_problem(ray, "1.35.0"), None, "schema")


def defaults():
    objects = template(None)
    equal(sorted(o["kind"] for o in objects), ["Deployment", "Pod", "Service", "ServiceAccount"], "kinds")
    env = {e["name"]: e for e in container(objects)["env"]}
    equal((env["LLMRT_MODELS"]["value"], "LLMRT_API_KEY" in env), ("/models/store", False), "environment")


def nvidia():
    objects = template("nvidia")
    words = container(objects)["args"]
    assert "--strict-device" in words and flag(words, "split") == "row", words
    equal(words[-1], "chat=/models/chat.gguf", "model")
    mounts = {m["name"]: m for m in container(objects)["volumeMounts"]}
    assert mounts["models"]["readOnly"], "the claim is mounted read-only"
    equal(only(objects, "Deployment")["spec"]["strategy"], {"type": "Recreate"}, "strategy")


def ascend():
    objects = template("ascend")
    main = container(objects)
    assert "/usr/local/Ascend/cann/set_env.sh" in main["command"], main["command"]
    # The line of the shell: what it starts is what follows the script.
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "set_env.sh"
        script.write_text("export FROM_SCRIPT=1\n")
        words = [str(script) if w == "/usr/local/Ascend/cann/set_env.sh" else w for w in main["command"]]
        words[words.index("llmrt")] = "env"
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "FROM_SCRIPT=1" in out, out
    assert any(line.startswith("LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver:") for line in out), out
    equal(pod(objects)["securityContext"]["supplementalGroups"], [1000], "group of the cards")
    paths = {v["hostPath"]["path"] for v in pod(objects)["volumes"] if "hostPath" in v}
    assert "/usr/local/Ascend/driver/lib64" in paths and "/srv/models" in paths, paths


def image_volume():
    objects = template("image-volume")
    [volume] = [v for v in pod(objects)["volumes"] if v["name"] == "models"]
    equal(volume["image"]["reference"], "registry.example/models/chat:1", "image")
    equal(container(objects)["command"], ["llmrt"], "command without a script")
    assert "supplementalGroups" not in pod(objects)["securityContext"], "group"


def everything():
    objects = template("everything-on")
    expected = "Deployment HorizontalPodAutoscaler NetworkPolicy PersistentVolumeClaim PodDisruptionBudget Secret Service"
    equal(sorted(o["kind"] for o in objects), [*expected.split(), "ServiceAccount", "ServiceMonitor"], "kinds")
    assert "replicas" not in only(objects, "Deployment")["spec"], "the autoscaler sets replicas"
    equal(only(objects, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"], "demo-chat", "target")
    secret = only(objects, "Secret")
    [reference] = [e["valueFrom"]["secretKeyRef"] for e in container(objects)["env"] if e["name"] == "LLMRT_API_KEY"]
    equal(reference["name"], secret["metadata"]["name"], "secret")
    assert reference["key"] in secret["data"], secret["data"]
    assert "not-a-secret" not in json.dumps(only(objects, "Deployment")), "the key is in the Deployment"
    [endpoint] = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    equal((endpoint["path"], endpoint["scheme"]), ("/metrics", "https"), "endpoint")
    equal(endpoint["authorization"]["credentials"]["name"], reference["name"], "key of the monitor")
    words = container(objects)["args"]
    values = {"kv-memory": "8GiB", "ctx": "0", "max-queue": "0", "keep-alive": "-1", "threads": "8"}
    equal({key: flag(words, key) for key in values}, values, "flags")
    equal(only(objects, "PodDisruptionBudget")["spec"]["minAvailable"], "50%", "minAvailable")
    ports = [p["port"] for rule in only(objects, "NetworkPolicy")["spec"]["egress"] for p in rule.get("ports", [])]
    assert 53 in ports and 443 in ports, ports
    [claim] = [v["persistentVolumeClaim"]["claimName"] for v in pod(objects)["volumes"] if v["name"] == "models"]
    equal(claim, only(objects, "PersistentVolumeClaim")["metadata"]["name"], "claim")


def pulls():
    """The shell's line of the init container, with a program that records its words."""
    cases = [("cpu", "0", "pull"), ("cpu", "1", "show"), ("everything-on", "1", "pull"), ("cpu", "broken", None)]
    for name, has, expected in cases:
        [init] = [c for c in pod(template(name))["initContainers"] if c["name"] == "pull"]
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "llmrt"
            program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/words\n[ {has} = 1 ] || [ "$1 {has}" = "pull 0" ]\n')
            program.chmod(0o755)
            env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            code = subprocess.run(init["command"] + init["args"], env=env).returncode
            equal(code == 0, expected is not None, f"{name}: success")
            lines = (Path(folder) / "words").read_text().splitlines()
        if expected is None:
            equal([line.split()[0] for line in lines], ["show", "pull"], "it ends at the first pull that fails")
            continue
        last = [line.split() for line in lines if line.split()[0] == expected]
        equal([line[-1] for line in last], init["args"], f"{name}: models")
        help_text = (ROOT / f"cli/src/help/{expected}.txt").read_text()
        for word in {w for line in last for w in line[1:-1] if w != "--"}:
            assert word.split("=")[0] in help_text, f"`llmrt {expected}` has no {word}"


def names_are_short():
    long = "a-release-whose-name-is-as-long-as-helm-permits-it-53"
    for name in ["ray-cpu", "everything-on"]:
        code, out, err = helm("template", long[:53], CHART, "--kube-version", "1.35.0", "--values", HERE / f"ci/{name}.yaml")
        equal(code, 0, err)
        for item in filter(None, yaml.safe_load_all(out)):
            problem = schema_problem(item, "1.35.0")
            assert problem is None and len(item["metadata"]["name"]) <= 63, (item["metadata"]["name"], problem)


def notes():
    """As the text of an object: `helm install` prints notes only where there is a cluster."""
    text = (CHART / "templates/NOTES.txt").read_text()
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\n"
    head += "data:\n  text: |\n    {{- include \"notes\" . | nindent 4 }}\n"
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "llmrt"
        shutil.copytree(CHART, chart)
        (chart / "templates/notes.yaml").write_text(f'{{{{- define "notes" -}}}}\n{text}{{{{- end -}}}}\n{head}')
        for name in [None, *DEPLOYMENTS, *RAYS]:
            shown = only(template(name, chart=chart), "ConfigMap")["data"]["text"]
            assert "/v1/models" in shown and "kubectl" in shown and "<no value>" not in shown, f"{name}: {shown}"
            keys_ = {"everything-on": '{{index .data "api-key" | base64decode}}', "ray-nvidia": "get secret llmrt-key"}
            assert keys_.get(name, "No API key is set") in shown, f"{name}: {shown}"


# What is refused


def check_that_wrong_values_are_refused():
    for setting, name, part in REFUSED:
        values = ["--values", HERE / f"ci/{name}.yaml"] if name else []
        code, out, err = helm("template", "demo", CHART, "--kube-version", "1.35.0", *values, "--set", setting)
        problem = None
        if code == 0:
            problem = "it is accepted"
        elif part not in err:
            problem = f"the message has no `{part}`: {err.strip()}"
        report(f"refused: {setting} ({name or 'defaults'})", problem)
    code, _, err = helm("template", "demo", CHART, "--kube-version", "1.31.0", "--values", HERE / "ci/image-volume.yaml")
    report("refused: an image volume on Kubernetes 1.31", None if code and "1.33 or newer" in err else err or "accepted")
    code, _, err = helm("template", "demo", CHART, "--kube-version", "1.29.0")
    report("refused: Kubernetes 1.29", None if code and "1.29" in err else err or "accepted")


def strict(schema, path="values.schema.json"):
    """Where an object of the schema takes keys that it does not name."""
    if isinstance(schema, list):
        return [found for i, part in enumerate(schema) for found in strict(part, f"{path}[{i}]")]
    if not isinstance(schema, dict):
        return []
    found = [part for key, value in schema.items() for part in strict(value, f"{path}/{key}")]
    is_open = schema.get("type") == "object" and "properties" in schema and schema.get("additionalProperties") is not False
    return found + ([path] if is_open else [])


def check_values():
    schema = json.loads((CHART / "values.schema.json").read_text())
    report("every object of the schema is closed", ", ".join(strict(schema)))
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    missing = sorted(set(values) ^ (set(schema["properties"]) - {"global"}))
    report("values.yaml and its schema have the same keys", ", ".join(missing))
    used = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    leaves = {str(key) for key in keys(values)}
    report("every value is used", ", ".join(sorted(k for k in leaves if not re.search(rf"\b{re.escape(k)}\b", used))))


def keys(value):
    """Names of values, without those of objects that are passed on whole."""
    whole = {"podSecurityContext", "securityContext", "probes", "rollingUpdate", "resources"}
    for key, inner in value.items():
        yield key
        if isinstance(inner, dict) and key not in whole:
            yield from keys(inner)


def main():
    names = sorted(path.stem for path in (HERE / "ci").glob("*.yaml"))
    equal(names, sorted(DEPLOYMENTS + RAYS), "files of ci/")
    code, out, err = helm("lint", "--strict", CHART)
    report("helm lint --strict, with the chart's values", None if code == 0 else out + err)
    for name in names:
        code, out, err = helm("lint", "--strict", CHART, "--values", HERE / f"ci/{name}.yaml", "--kube-version", "1.35.0")
        report(f"helm lint --strict: {name}", None if code == 0 else out + err)
    for version in VERSIONS:
        for name in [None, *names]:
            if version >= OLDEST.get(name, "0"):
                what = name or "defaults"
                attempt(f"{what}, {version}: it renders", lambda: check_schemas(what, version, template(name, version)))
    for check in [check_that_schemas_refuse, check_values, check_meanings, check_that_wrong_values_are_refused]:
        attempt(f"{check.__name__} reaches its end", check)
    print(f"{results['passed']} passed, {results['failed']} failed")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
