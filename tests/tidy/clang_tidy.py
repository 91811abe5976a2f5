"""clang_tidy.py CLANG_TIDY BUILD_DIR [FILE...]: runs clang-tidy on the sources of a build.

A file that passed is not looked at again until it, a header of ours that it includes, its compiler
flags, .clang-tidy or the installed packages change: a marker named by the hash of all these is
kept, in $BEVY_CACHE if that is set (clean checkouts share it then), else in the build folder.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def include_closure(path):
    """The file and every header under src/ that it includes, directly or not."""
    found, pending = {}, [path]
    while pending:
        current = pending.pop()
        if current in found or not current.is_file():
            continue
        text = current.read_text()
        found[current] = text
        pending += [tree.ROOT / "src" / name for name in INCLUDE.findall(text)]
    return found


def fingerprint(path, command, setting):
    digest = hashlib.sha256(setting)
    digest.update(command.replace(str(tree.ROOT), "").encode())
    for name, text in sorted(include_closure(path).items()):
        digest.update(f"{name.relative_to(tree.ROOT)}\0{text}\0".encode())
    return digest.hexdigest()


def jobs_of(build, wanted):
    """(source, compiler command) for the wanted sources, or all of the tree's."""
    listed = {tree.ROOT / path for path in tree.files()}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path in listed and (not wanted or path in wanted):
            yield path, entry["command"]


def lint(program, build, path):
    run = subprocess.run([program, "-p", str(build), "--quiet", "--extra-arg=-w", str(path)],
                         cwd=tree.ROOT, capture_output=True, text=True, check=False)
    return run.returncode == 0, run.stdout + ("" if run.stdout else run.stderr)


def main():
    program, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    wanted = {pathlib.Path(name).resolve() for name in sys.argv[3:]}
    cache = pathlib.Path(os.environ.get("BEVY_CACHE", build)) / "clang-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout
    setting = (version + (tree.ROOT / ".clang-tidy").read_bytes()
               + os.environ.get("BEVY_ENV_ID", "").encode())

    started, failed, fresh = time.monotonic(), 0, {}
    jobs = list(jobs_of(build, wanted))
    for path, command in jobs:
        marker = cache / fingerprint(path, command, setting)
        if marker.exists():
            os.utime(marker)
        else:
            fresh[path] = marker
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(lint, program, build, path): path for path in fresh}
        for run in concurrent.futures.as_completed(runs):
            passed, output = run.result()
            if passed:
                fresh[runs[run]].touch()
            else:
                failed += 1
                print(output, flush=True)
    seconds = time.monotonic() - started
    print(f"{len(jobs)} sources, {len(fresh)} looked at in {seconds:.0f} s, {failed} with findings")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
