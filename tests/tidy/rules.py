"""The rules. Each is a function of (File, Context) that yields (line number, message).

A rule that has no canary in tidy_test.py fails that test, so none can rot unnoticed.
"""

import pathlib
import re

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500

# Files that may be longer, each with its reason.
LONG_FILES = {}

CODE = (".h", ".cc", ".py", ".cmake", ".sh")
CPP = (".h", ".cc")
SCRIPTS = ("dev", ".ci/run", "Dockerfile", "CMakeLists.txt")

CORE_BANNED = {"thread", "mutex", "shared_mutex", "condition_variable", "atomic", "future",
               "chrono", "random", "iostream", "fstream", "unordered_map", "unordered_set",
               "functional"}

# Third-party headers, and the files that may include them. First match counts.
TEST_FILE = r"src/.*_test(_[a-z]+)?\.(cc|h)"
CONFINED = [
    (r"liburing\.h", r"src/storage/uring_[a-z_]*\.cc"),
    (r"(ggml.*|gguf)\.h", r"src/(compute|model)/.*|" + TEST_FILE),
    (r"llama.*\.h", r"src/text/llama_[a-z_]*\.cc|" + TEST_FILE),
    (r"nlohmann/.*", r"src/(cli|server)/.*|src/text/(chat|json_schema)_[a-z_]*\.cc|"
     + TEST_FILE),
    (r"prometheus/.*", r"src/server/metrics\.cc"),
    (r"minja/.*", r"src/text/chat_template.*"),
    (r"CLI/.*", r"src/cli/.*"),
    (r"httplib\.h", r"src/server/http_server\.cc"),
    (r"(gtest|gmock)(/.*|\.h)", TEST_FILE + r"|src/.*test[a-z_]*\.h"),
]


class File:
    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.suffix = pathlib.PurePath(path).suffix
        self.is_code = self.suffix in CODE or path in SCRIPTS or path.endswith("/CMakeLists.txt")
        self.is_cpp = self.suffix in CPP
        self.is_test = re.fullmatch(TEST_FILE, path) is not None
        self.stripped = strip_cpp(text) if self.is_cpp else text

    def layer(self):
        parts = self.path.split("/")
        return parts[1] if self.is_cpp and parts[0] == "src" and len(parts) > 2 else None


class Context:
    """What a rule needs to know beyond its file."""

    def __init__(self, layers, paths):
        self.layers = layers
        self.paths = set(paths)
        self.folders = {str(parent) for path in paths for parent in pathlib.PurePath(path).parents}


def strip_cpp(text):
    """Comments, strings and character literals blanked, line structure kept."""
    pattern = re.compile(
        r'R"([^(\s]*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def matches(file, pattern, text=None):
    """(line number, match) of every match, line by line."""
    for number, line in enumerate((text or file.text).split("\n"), 1):
        for match in re.finditer(pattern, line):
            yield number, match


def rule_columns(file, _):
    if file.is_code:
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMNS_MAX:
                yield number, f"{len(line)} columns, at most {COLUMNS_MAX}"


def rule_whitespace(file, _):
    if file.path.startswith("tests/data/"):
        return
    for number, line in enumerate(file.lines, 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if "\t" in line:
            yield number, "tab"
    if file.text and not file.text.endswith("\n"):
        yield len(file.lines), "no newline at the end of the file"


def rule_ascii(file, _):
    if file.is_code:
        for number, match in matches(file, r"[^\x00-\x7f]"):
            yield number, f"non-ASCII character {match.group()!r}; write an escape"


def rule_file_length(file, _):
    lines = file.text.count("\n")
    if file.is_code and file.path not in LONG_FILES and lines > FILE_LINES_MAX:
        yield FILE_LINES_MAX, f"{lines} lines, at most {FILE_LINES_MAX}: split the file"


def rule_function_length(file, _):
    """Outermost braces with a parameter list before them; lambdas count to their function."""
    if not file.is_cpp:
        return
    code = re.sub(r"^\s*#(?:.*\\\n)*.*$", lambda m: re.sub(r"[^\n]", "", m.group()), file.stripped,
                  flags=re.MULTILINE)
    scopes, head_start, line, function_depth = [], 0, 1, None
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            head = code[head_start:position]
            is_body = code[position - 1] in " \n"  # not the braces of an initializer: a_{1}
            is_scope = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", head)
            if function_depth is None and is_body and "(" in head and not is_scope:
                function_depth = len(scopes)
            scopes.append((line, is_body))
            head_start = position + 1 if is_body else head_start
        elif char == "}" and scopes:
            opened, is_body = scopes.pop()
            if function_depth == len(scopes):
                function_depth = None
                lines = line - opened + 1
                if lines > FUNCTION_LINES_MAX:
                    yield opened, f"function of {lines} lines, at most {FUNCTION_LINES_MAX}"
            head_start = position + 1 if is_body else head_start
        elif char == ";":
            head_start = position + 1


def rule_file_name(file, _):
    path = pathlib.PurePath(file.path)
    if file.suffix in CODE and not re.fullmatch(r"[a-z0-9_]+", path.stem):
        yield 1, "file names are snake_case"


def rule_marker(file, _):
    for number, match in matches(file, r"\b(TODO|FIXME|HACK|XXX)\b"):
        if not file.path.startswith("tests/tidy/"):
            yield number, f"leftover {match.group()}: do it, or file an issue"


def rule_header(file, _):
    if file.suffix == ".h":
        if not file.text.startswith("// "):
            yield 1, "a header opens with a comment: what it is, and its contract"
        if "\n#pragma once\n" not in file.text:
            yield 1, "no #pragma once"


def rule_layering(file, context):
    layer = file.layer()
    if layer is None:
        return
    if layer not in context.layers:
        yield 1, f"src/{layer} is no bevy_layer() in src/CMakeLists.txt"
        return
    row = context.layers[layer]
    allowed = {layer} | row.deps | (row.test_deps if file.is_test else set())
    for number, match in matches(file, r'^\s*#\s*include\s+"([^"]+)"'):
        header = match.group(1)
        target = header.split("/")[0]
        if "/" not in header and target not in context.layers and not is_confined(header):
            yield number, f'"{header}": include from src/, for example "{layer}/{header}"'
        elif target in context.layers and target not in allowed and header not in row.interfaces:
            yield number, f"{layer} may not include {header} (see src/CMakeLists.txt)"


def is_confined(header):
    return any(re.fullmatch(pattern, header) for pattern, _ in CONFINED)


def rule_third_party(file, _):
    if not file.is_cpp:
        return
    for number, match in matches(file, r'^\s*#\s*include\s+[<"]([^>"]+)[>"]'):
        for header, users in CONFINED:
            if re.fullmatch(header, match.group(1)):
                if not re.fullmatch(users, file.path):
                    place = users.split("|src/.*_test")[0]
                    yield number, f"{match.group(1)} is confined to {place}"
                break


def rule_core_is_pure(file, _):
    if file.layer() != "core" or file.is_test:
        return
    for number, match in matches(file, r"^\s*#\s*include\s+<([^>]+)>"):
        if match.group(1) in CORE_BANNED:
            yield number, f"<{match.group(1)}> in core/, which is pure and deterministic"
    for number, match in matches(file, r"\b(float|double)\b", file.stripped):
        yield number, f"{match.group()} in core/: decisions are made with integers"


def rule_no_getenv(file, _):
    if file.is_cpp and not file.is_test and file.path != "src/main.cc" and file.layer() != "cli":
        for number, _match in matches(file, r"\b(secure_)?getenv\b", file.stripped):
            yield number, "getenv outside main and cli/: pass it in"


def rule_machine_paths(file, _):
    for number, match in matches(file, r"(?<![\w.*/}-])/(work|tmp|root|home)/[\w.]+"):
        if not file.path.startswith("tests/tidy/"):
            yield number, f"{match.group()}: a path of one machine"


def rule_package_hosts(file, _):
    pattern = r"https?://[^\s)]*(debian|ubuntu|pypi|mirror|/apt)[^\s)]*"
    for number, match in matches(file, pattern):
        if not file.path.startswith("tests/tidy/"):
            yield number, f"{match.group()}: package hosts are the machine's business"


def rule_markdown_title(file, _):
    if file.suffix == ".md":
        titles = [number for number, match in matches(file, r"^# .", without_fences(file.text))]
        if len(titles) != 1 or titles[0] != 1:
            yield (titles + [1])[0], "a document has one `# Title`, on its first line"


def rule_markdown_links(file, context):
    if file.suffix != ".md":
        return
    folder = pathlib.PurePath(file.path).parent
    for number, match in matches(file, r"\]\(([^)\s]+)\)", without_fences(file.text)):
        target = match.group(1).split("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            continue
        path = normal_path(folder / target)
        if path not in context.paths and path not in context.folders:
            yield number, f"dead link to {match.group(1)}"


def without_fences(text):
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r"^ *```.*?^ *```|`[^`\n]+`", blank, text, flags=re.DOTALL | re.MULTILINE)


def normal_path(path):
    parts = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


RULES = [value for name, value in list(globals().items()) if name.startswith("rule_")]
