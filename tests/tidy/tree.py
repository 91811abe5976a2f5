"""Which files belong to the tree, and the layers that src/CMakeLists.txt declares."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".cache", "build", "shared", "__pycache__"}


def files():
    """Paths relative to ROOT, sorted: what git tracks or would track; without git, everything."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", "--cached",
               "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True).stdout
        names = [name for name in listing.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = list(walk())
    return sorted(name for name in set(names)
                  if (ROOT / name).is_file() and not SKIPPED_FOLDERS & set(name.split("/")))


def walk():
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        for name in names:
            yield str((pathlib.Path(folder) / name).relative_to(ROOT))


class Layer:
    """One bevy_layer(...) row: whose headers its files may include."""

    def __init__(self, deps, interfaces, test_deps):
        self.deps = deps              # layers
        self.interfaces = interfaces  # single headers of other layers
        self.test_deps = test_deps    # layers, for *_test.cc only


KEYWORDS = ("DEPS", "INTERFACES", "LINK", "TEST_DEPS", "TEST_LINK")


def parse_layers(cmake_text):
    """The rows of src/CMakeLists.txt, by layer name."""
    text = re.sub(r"#.*", "", cmake_text)
    for name, value in re.findall(r"\bset\((\w+)([^)]*)\)", text):
        text = text.replace("${" + name + "}", value)
    layers = {}
    for arguments in re.findall(r"\bbevy_layer\(([^)]*)\)", text):
        words = arguments.split()
        lists = {keyword: set() for keyword in KEYWORDS}
        keyword = None
        for word in words[1:]:
            if word in lists:
                keyword = word
            else:
                lists[keyword].add(word)
        layers[words[0]] = Layer(lists["DEPS"], lists["INTERFACES"], lists["TEST_DEPS"])
    return layers
