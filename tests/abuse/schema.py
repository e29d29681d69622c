"""schemathesis on the published document: requests that fit it, and requests that do not."""

import json
import os
import re
import subprocess
import sys
import tempfile

from server import Failure

CHECKS = ["status_code_conformance", "content_type_conformance", "response_schema_conformance", "unsupported_method",
          "response_headers_conformance"]


def run(server, per_operation, seed=1):
    """At most `per_operation` generated requests for each operation, and those of fixed edges; the number of requests."""
    document = server.document()
    for item in document["paths"].values():
        for operation in item.values():
            # Permitted where a device fails or a registry is not reached, neither of which happens here.
            operation["responses"].pop("500", None)
            operation["responses"].pop("502", None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "openapi.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        done = subprocess.run(
            [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", path, "--url", server.url,
             "--checks", ",".join(CHECKS), "--max-examples", str(per_operation), "--seed", str(seed), "--mode", "all",
             "--phases", "coverage,fuzzing", "--generation-database", "none", "--no-color", "--warnings", "off",
             "--request-timeout", "120", "--continue-on-failure", "--suppress-health-check", "all"],
            cwd=folder, capture_output=True, text=True, check=False,
        )
    if done.returncode != 0:
        raise Failure(f"schemathesis: {done.stdout[-6000:]}{done.stderr[-2000:]}")
    found = re.search(r"Test cases:\s*\n?\s*(\d+) generated", done.stdout) or re.search(r"(\d+) generated", done.stdout)
    if not found:
        raise Failure(f"schemathesis reported no number of requests: {done.stdout[-2000:]}")
    return int(found[1])
