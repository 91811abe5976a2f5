"""Every rule must catch its canary, and must stay silent on a file that follows the style."""

import unittest

import rules
import tree

LAYERS = tree.parse_layers("""
    bevy_layer(base)          # comments, and more than one line, are fine
    bevy_layer(core DEPS base TEST_DEPS sim)
    bevy_layer(storage DEPS base LINK uring)
    set(interfaces storage/link.h)
    bevy_layer(engine DEPS base core
               INTERFACES ${interfaces} LINK more)
    bevy_layer(sim DEPS base core)
""")
CONTEXT = rules.Context(LAYERS, ["src/base/ids.h", "docs/style.md"])

GOOD_HEADER = """// What it is. 'quoted' and "quoted" words, and {braces}, do not confuse the rules.
#pragma once

#include <vector>

#include "base/ids.h"

namespace bevy {

class Thing {
public:
    int size() const { return size_; }  // a double read is fine in a comment

private:
    int size_ = 1'000'000;
};

}  // namespace bevy
"""

LONG_BODY = "    step();\n" * 70

# rule -> [(path, text)]: each must be caught.
CANARIES = {
    rules.rule_columns: [("src/base/a.h", "// " + "x" * 98 + "\n"), ("dev", "#" * 101 + "\n")],
    rules.rule_whitespace: [("a.md", "text \n"), ("src/base/a.cc", "\tint a;\n"), ("a.md", "text")],
    rules.rule_ascii: [("src/base/a.cc", "// caf\u00e9\n"), ("dev", "# \u2192\n")],
    rules.rule_file_length: [("src/base/a.cc", "\n" * 501)],
    rules.rule_function_length: [
        ("src/base/a.cc", "void f() {\n" + LONG_BODY + "}\n"),
        ("src/base/a.cc", "class A : B {\nint f(int a = g(1)) const {\n" + LONG_BODY + "}\n};\n"),
        ("src/base/a.cc", "namespace {\nA::A(int a) : a_{a} {\n" + LONG_BODY + "}\n}\n"),
        ("src/base/a_test.cc", "TEST(A, B) {\n    auto f = [] {\n" + LONG_BODY + "    };\n}\n"),
    ],
    rules.rule_file_name: [("src/base/BadName.h", ""), ("tests/bad-name.py", "")],
    rules.rule_marker: [("src/base/a.cc", "// TODO: later\n"), ("docs/a.md", "FIXME\n")],
    rules.rule_header: [
        ("src/base/a.h", "#pragma once\n"),
        ("src/base/a.h", "// No guard.\n#include <vector>\n"),
    ],
    rules.rule_layering: [
        ("src/base/a.h", '#include "core/core.h"\n'),
        ("src/core/a.cc", '#include "storage/link.h"\n'),
        ("src/core/a.cc", '#include "sim/world.h"\n'),
        ("src/engine/a.cc", '#include "storage/uring_link.h"\n'),
        ("src/engine/a.cc", '#include "a.h"\n'),
        ("src/nolayer/a.cc", "int a;\n"),
    ],
    rules.rule_third_party: [
        ("src/storage/pread_link.cc", "#include <liburing.h>\n"),
        ("src/core/core.cc", "#include <ggml-cpu.h>\n"),
        ("src/base/a.h", '#include "gguf.h"\n'),
        ("src/compute/a.cc", "#include <llama.h>\n"),
        ("src/engine/a.cc", "#include <nlohmann/json.hpp>\n"),
        ("src/engine/a.cc", "#include <gtest/gtest.h>\n"),
    ],
    rules.rule_core_is_pure: [
        *[("src/core/a.cc", f"#include <{name}>\n") for name in sorted(rules.CORE_BANNED)],
        ("src/core/a.h", "double share = 0;\n"),
        ("src/core/eviction/a.cc", "auto a = static_cast<float>(b);\n"),
    ],
    rules.rule_no_getenv: [("src/base/a.cc", 'auto a = std::getenv("HOME");\n')],
    rules.rule_machine_paths: [("docs/a.md", "see /work/shared\n"), ("dev", "cd /tmp/x\n")],
    rules.rule_package_hosts: [("dev", "curl http://deb.debian.example/pool\n")],
    rules.rule_markdown_title: [
        ("docs/a.md", "text\n"),
        ("docs/a.md", "# One\n\n# Two\n"),
        ("docs/a.md", "\n# Late\n"),
    ],
    rules.rule_markdown_links: [
        ("docs/a.md", "# A\n[b](b.md)\n"),
        ("README.md", "# A\n[b](docs/style.md) [c](src/core/core.h#L3)\n"),
    ],
}

# Each must pass every rule.
GOOD = [
    ("tests/data/tokens.json", "[1, 2]"),
    ("src/core/thing.h", GOOD_HEADER),
    ("src/core/thing_test.cc", '#include <random>\n\n#include "sim/world.h"\n\ndouble a = 0.5;\n'),
    ("src/engine/engine.cc", '#include "storage/link.h"\n'),
    ("src/storage/uring_link.cc", "#include <liburing.h>\n"),
    ("src/base/table.cc", "const Row kRows[] = {\n" + "    Row(1),\n" * 90 + "};\n"),
    ("src/base/a.cc", "void f() {\n" + "    step();\n" * 68 + "}\n"),
    ("docs/a.md", "# A\n\n```sh\n# no title\n[x](nowhere.md)\n```\n[s](style.md#why) `[a](b)`\n"),
    ("README.md", "# A\n\n[docs](docs/) [web](https://example.org/a) [below](#a)\n"),
]


def findings(rule, path, text):
    return list(rule(rules.File(path, text), CONTEXT))


class TidyTest(unittest.TestCase):
    def test_every_rule_has_a_canary(self):
        self.assertEqual(set(rules.RULES), set(CANARIES))

    def test_canaries_are_caught(self):
        for rule, snippets in CANARIES.items():
            for path, text in snippets:
                with self.subTest(rule=rule.__name__, path=path, text=text[:60]):
                    self.assertTrue(findings(rule, path, text))

    def test_good_files_pass(self):
        for path, text in GOOD:
            for rule in rules.RULES:
                with self.subTest(rule=rule.__name__, path=path):
                    self.assertEqual([], findings(rule, path, text))

    def test_both_bad_links_of_a_line_are_told_apart(self):
        found = findings(rules.rule_markdown_links, "README.md",
                         "# A\n[b](docs/style.md) [c](src/core/core.h)\n")
        self.assertEqual([(2, "dead link to src/core/core.h")], found)

    def test_layers_are_read(self):
        self.assertEqual({"base", "core"}, LAYERS["engine"].deps)
        self.assertEqual({"storage/link.h"}, LAYERS["engine"].interfaces)
        self.assertEqual({"sim"}, LAYERS["core"].test_deps)
        self.assertEqual({"base"}, LAYERS["storage"].deps)

    def test_the_real_tree_is_seen(self):
        files = tree.files()
        self.assertIn("src/CMakeLists.txt", files)
        self.assertIn("tests/tidy/rules.py", files)
        real = tree.parse_layers((tree.ROOT / "src/CMakeLists.txt").read_text())
        self.assertIn("core", real)
        self.assertEqual({"base"}, real["core"].deps)


if __name__ == "__main__":
    unittest.main()
