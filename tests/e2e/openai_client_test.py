"""The openai Python package, which most programs use, against bevy serve.

Usage: openai_client_test.py BEVY SOURCE_DIR
"""
import json
import os
import sys
import unittest

import openai

from server_process import ServerProcess

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")
HERMES = os.path.join(SOURCE, "tests", "data", "hermes_template.jinja")
HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer", "maximum": 9}},
          "required": ["answer"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"word": {"enum": ["sea"]}}, "required": ["word"]}}}


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(BEVY, MODEL, "-np", "4", "-c", "2048", "--queue", "16",
                                   "--api-key", "key", "-a", "tiny", "--chat-template-file", HERMES)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.kill()

    def chat(self, **options):
        options = {"messages": HI, "max_tokens": 8, "temperature": 0, **options}
        return self.client.chat.completions.create(model="tiny", **options)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.model, "tiny")
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertTrue(reply.choices[0].message.content)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual(reply.usage.completion_tokens, 8)

    def test_stream(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, self.chat().choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_several_choices(self):
        reply = self.chat(n=3, temperature=1, seed=1)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1, 2])
        self.assertGreater(len({choice.message.content for choice in reply.choices}), 1)
        self.assertEqual(reply.usage.completion_tokens, 24)
        streamed = {}
        for chunk in self.chat(n=3, temperature=1, seed=1, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] = (streamed.get(choice.index, "")
                                          + (choice.delta.content or ""))
        self.assertEqual([streamed[i] for i in range(3)],
                         [choice.message.content for choice in reply.choices])

    def test_probabilities(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), 8)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            # Greedy: the chosen one is the most likely.
            self.assertEqual(token.top_logprobs[0].token, token.token)

    def test_tools(self):
        reply = self.chat(tools=[TOOL], tool_choice="required", max_tokens=200)
        call = reply.choices[0].message.tool_calls[0]
        self.assertEqual(reply.choices[0].finish_reason, "tool_calls")
        self.assertEqual(call.function.name, "look_up")
        self.assertEqual(json.loads(call.function.arguments), {"word": "sea"})
        answer = self.chat(tools=[TOOL], messages=HI + [
            reply.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "large water"}])
        self.assertTrue(answer.choices[0].message.content)

    def test_json_schema(self):
        reply = self.chat(max_tokens=100, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}})
        self.assertLessEqual(json.loads(reply.choices[0].message.content)["answer"], 9)

    def test_completions(self):
        reply = self.client.completions.create(model="tiny", prompt=["Once upon", "The moon"],
                                               max_tokens=4, temperature=0, logprobs=1, stop=["zz"])
        self.assertEqual(reply.object, "text_completion")
        self.assertEqual(len(reply.choices), 2)
        self.assertTrue(all(choice.text for choice in reply.choices))
        chunks = list(self.client.completions.create(model="tiny", prompt="Once upon", max_tokens=4,
                                                     temperature=0, stream=True))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), reply.choices[0].text)

    def test_responses(self):
        reply = self.client.responses.create(model="tiny", input="Hi", max_output_tokens=8,
                                             temperature=0)
        self.assertEqual(reply.output_text, self.chat().choices[0].message.content)
        kinds, text = [], ""
        for event in self.client.responses.create(model="tiny", input=HI, max_output_tokens=8,
                                                  temperature=0, stream=True):
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        self.assertEqual(text, reply.output_text)
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))

    def test_errors_have_their_classes(self):
        for expected, options in (
                (openai.BadRequestError, {"temperature": 5000}),
                (openai.BadRequestError, {"messages": []}),
                (openai.BadRequestError, {"messages": [{"role": "user", "content": "x " * 3000}]}),
                (openai.BadRequestError, {"stream": True, "n": 0})):
            with self.assertRaises(expected) as caught:
                self.chat(**options)
            self.assertTrue(caught.exception.body["message"])
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()

    def test_giving_up_in_the_middle(self):
        stream = self.chat(stream=True, max_tokens=400, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertTrue(self.chat().choices[0].message.content)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
