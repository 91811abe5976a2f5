"""Runs every curl command of docs/http-api.md, with the demo model.

Usage: http_api_examples_test.py BEVY SOURCE_DIR
"""
import json
import os
import re
import subprocess
import sys
import unittest

from server_process import LIMIT_S, ServerProcess, parse_events

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")


def examples():
    with open(os.path.join(SOURCE, "docs", "http-api.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        # A command ends where the next begins.
        yield from (c for c in re.split(r"^(?=curl )", block, flags=re.MULTILINE)
                    if c.startswith("curl "))


class Examples(unittest.TestCase):
    def test_all(self):
        commands = list(examples())
        self.assertGreater(len(commands), 12)
        with ServerProcess(BEVY, MODEL, "-np", "2", "-c", "1024", "--metrics") as server:
            for command in commands:
                with self.subTest(command=command):
                    ran = subprocess.run(
                        command.replace("http://localhost:8080", server.url)
                               .replace("curl ", "curl -sS --fail-with-body ", 1),
                        shell=True, capture_output=True, text=True, timeout=LIMIT_S)
                    self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
                    if "/metrics" in command:
                        self.assertIn("bevy:expert_hits_total", ran.stdout)
                    elif '"stream": true' in command:
                        self.assertEqual(list(parse_events(ran.stdout))[-1], "[DONE]")
                    else:
                        json.loads(ran.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
