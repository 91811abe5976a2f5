"""format.py CLANG_FORMAT [--fix]: checks, or repairs, the layout of every C++ file."""

import subprocess
import sys

import tree


def main():
    program, fix = sys.argv[1], "--fix" in sys.argv[2:]
    paths = [path for path in tree.files() if path.endswith((".h", ".cc"))]
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    run = subprocess.run([program, *mode, *paths], cwd=tree.ROOT, check=False)
    if run.returncode != 0 and not fix:
        print("repair it with: ./dev fmt")
    print(f"{len(paths)} files")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
