"""bevy serve computes no beginning of a prompt twice, and gives the same replies.

Usage: prompt_reuse_test.py BEVY SOURCE_DIR
"""
import json
import os
import sys
import time
import unittest

from server_process import ServerProcess

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")


def serve(*arguments):
    """Chunks of 32 tokens, so that short texts have whole ones."""
    return ServerProcess(BEVY, MODEL, *arguments, "-c", "1024", "-ub", "32")


class PromptReuse(unittest.TestCase):
    PROMPT = "Once there was a fox named Pip. " * 10

    def test_a_conversation_is_not_computed_twice(self):
        with serve("-np", "2", "--metrics") as server:
            messages = [{"role": "user", "content": self.PROMPT}]
            body = {"messages": messages, "temperature": 0, "max_tokens": 8, "stream": True,
                    "stream_options": {"include_usage": True}, "timings_per_token": True}
            def ask(**more):
                events = server.stream("/v1/chat/completions", dict(body, **more))
                text = "".join(choice["delta"].get("content") or ""
                               for event in events[:-1] for choice in event["choices"])
                timings = {event["timings"]["cache_n"] for event in events[:-1]
                           if "timings" in event}
                self.assertEqual(len(timings), 1, timings)
                usage = events[-2]["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                self.assertEqual(timings, {cached})
                return text, cached, usage["prompt_tokens"]
            first, cached, prompt = ask()
            self.assertEqual(cached, 0)
            again, cached, _ = ask()
            self.assertEqual(again, first)
            self.assertEqual(cached, (prompt - 1) // 32 * 32)
            fresh, none, _ = ask(cache_prompt=False)
            self.assertEqual((fresh, none), (first, 0))
            messages += [{"role": "assistant", "content": first},
                         {"role": "user", "content": "And then?"}]
            turn, cached, _ = ask()
            self.assertGreaterEqual(cached, 64)
            self.assertEqual(turn, ask(cache_prompt=False)[0])
            self.assertEqual(server.metrics()["llamacpp:prompt_tokens_cached_total"],
                             cached + (prompt - 1) // 32 * 32)

    def test_a_request_that_was_cancelled_leaves_nothing_wrong(self):
        with serve("-np", "1", "--expert-cache", "5%") as server:
            body = {"prompt": self.PROMPT + "He", "n_predict": 8, "temperature": 0}
            expected = server.post("/completion", dict(body, cache_prompt=False))["content"]
            for wait in (0.0, 0.01, 0.03, 0.1):
                connection = server.connect()
                connection.request("POST", "/completion", json.dumps(dict(body, n_predict=200)),
                                   {"Content-Type": "application/json"})
                time.sleep(wait)
                connection.close()
                self.assertEqual(server.post("/completion", body)["content"], expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
