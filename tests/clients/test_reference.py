"""The tests that `docs/reference/api.md` names are there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FILES = r"completions|chats|errors|anthropic|ollama|peers_\w+|node|serve/\w+\.rs"


def file_of(name):
    """The file that the page calls so."""
    if name.startswith("serve/"):
        return ROOT / "tests/tests/end_to_end" / name
    if name == "node":
        return ROOT / "tests/clients/openai.test.mjs"
    prefix = "test_" if name.startswith("peers_") or name in ("anthropic", "ollama") else "test_openai_"
    return ROOT / f"tests/clients/{prefix}{name}.py"


class Reference(unittest.TestCase):
    def test_each_row_that_holds_names_tests_that_are_there(self):
        page = (ROOT / "docs/reference/api.md").read_text().split("\n## ", 1)[1]
        named = re.findall(rf"`({FILES}): ([^`]+?)`", page)
        self.assertGreater(len(named), 80)
        for file, test in named:
            text = file_of(file).read_text()
            prefix = "" if file == "node" else "fn " if file.startswith("serve/") else "def test_"
            self.assertTrue(re.search(re.escape(prefix + test) + r"\b", text), f"{file}: {test}")


if __name__ == "__main__":
    unittest.main()
