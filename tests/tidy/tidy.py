"""Checks every text file of the tree against every rule of rules.py. Exit status 1 on findings."""

import sys

import rules
import tree


def read_text(path):
    """The file's text; nothing when it is data (models, traces) rather than text."""
    if path.endswith(".gguf"):
        return None  # may be larger than memory
    data = (tree.ROOT / path).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def check(file, context):
    for rule in rules.RULES:
        for line, message in rule(file, context):
            yield f"{file.path}:{line}: {message} [{rule.__name__.removeprefix('rule_')}]"


def main():
    paths = tree.files()
    layers = tree.parse_layers((tree.ROOT / "src/CMakeLists.txt").read_text())
    context = rules.Context(layers, paths)
    checked, findings = 0, []
    for path in paths:
        text = read_text(path)
        if text is not None:
            checked += 1
            findings += check(rules.File(path, text), context)
    for finding in findings:
        print(finding)
    print(f"{checked} files, {len(rules.RULES)} rules, {len(findings)} findings")
    return 1 if findings or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
