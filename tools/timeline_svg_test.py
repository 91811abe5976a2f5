"""The timeline tool on events as src/engine/trace_recorder.cc writes them."""

import contextlib
import io
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree

import timeline_svg

# Two requests on a model with two MoE layers; the first event lies at 1000 us.
RECORDED = """{"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"requests"}},
{"ph":"M","pid":2,"tid":0,"name":"thread_name","args":{"name":"steps"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"request 1"}},
{"ph":"B","pid":1,"tid":1,"ts":1000.000,"name":"request","args":{"prompt_tokens":3}},
{"ph":"B","pid":1,"tid":1,"ts":1000.000,"name":"prefill"},
{"ph":"X","pid":2,"tid":0,"ts":1000.000,"dur":1000.000,"name":"stage 0","args":\
{"stage":0,"sequences":2,"experts":0,"uses":0}},
{"ph":"X","pid":1,"tid":1,"ts":1000.000,"dur":1000.000,"name":"computing"},
{"ph":"X","pid":3,"tid":0,"ts":2000.000,"dur":2000.000,"name":"expert 5","args":\
{"expert":5,"layer":0,"slot":1,"bytes":4096,"ok":true}},
{"ph":"X","pid":3,"tid":1,"ts":2000.000,"dur":500.000,"name":"expert 6","args":\
{"expert":6,"layer":0,"slot":2,"bytes":0,"ok":false}},
{"ph":"X","pid":1,"tid":1,"ts":2000.000,"dur":2000.000,"name":"waiting"},
{"ph":"X","pid":2,"tid":0,"ts":3000.000,"dur":500.000,"name":"stage 1","args":\
{"stage":1,"sequences":0,"experts":1,"uses":1}},
{"ph":"X","pid":2,"tid":0,"ts":4000.000,"dur":1000.000,"name":"stage 2","args":\
{"stage":2,"sequences":1,"experts":2,"uses":2}},
{"ph":"X","pid":1,"tid":1,"ts":4000.000,"dur":1000.000,"name":"computing"},
{"ph":"X","pid":1,"tid":2,"ts":1000.000,"dur":4000.000,"name":"ready"},
{"ph":"E","pid":1,"tid":1,"ts":5000.000},
{"ph":"B","pid":1,"tid":1,"ts":5000.000,"name":"decode"}
]}
"""

# The four-parameter look of a bar: x, width, height, fill.
BAR = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="([\d.]+)" '
                 r'fill="(#\w+)"/>')


class TimelineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace = self.folder / "run.json"
        self.trace.write_text(RECORDED)
        self.svg = self.folder / "run.svg"

    def run_tool(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            status = timeline_svg.main([str(a) for a in arguments])
        return status, errors.getvalue()

    def test_the_numbers_are_those_of_the_trace(self):
        trace = timeline_svg.load_trace(self.trace)
        numbers = timeline_svg.summary(trace, timeline_svg.Span(0, 4))
        self.assertAlmostEqual(numbers["processor busy"], 2.5 / 4)
        self.assertAlmostEqual(numbers["link busy"], 2 / 4)
        self.assertAlmostEqual(numbers["stalled"], 1.5 / 4)  # of 2 ms waiting, 0.5 with a step
        self.assertEqual(numbers["tokens"], 1)
        early = timeline_svg.summary(trace, timeline_svg.Span(0, 2))
        self.assertAlmostEqual(early["processor busy"], 1 / 2)
        self.assertEqual(early["tokens"], 0)

    def test_a_picture_is_well_formed_and_to_scale(self):
        self.assertEqual(self.run_tool(self.trace, "-o", self.svg, "--title", "<a> & b"), (0, ""))
        text = self.svg.read_text()
        xml.etree.ElementTree.fromstring(text)
        self.assertIn("&lt;a&gt; &amp; b", text)
        self.assertIn("request 2", text)
        read = timeline_svg.stage_colour(1, 2)
        bars = [(float(x), float(width), fill) for x, width, _, fill in BAR.findall(text)]
        scale = (timeline_svg.WIDTH - timeline_svg.LEFT - timeline_svg.RIGHT) / 4
        widths = [width for x, width, fill in bars
                  if fill == read and abs(x - timeline_svg.LEFT - scale) < 0.01]
        self.assertEqual(len(widths), 1)
        self.assertAlmostEqual(widths[0], 2 * scale, delta=0.5)
        self.assertIn(timeline_svg.FAILED, [fill for _, _, fill in bars])

    def test_a_window_leaves_out_what_lies_outside(self):
        self.run_tool(self.trace, "-o", self.svg, "--from", 3, "--to", 4)
        self.assertNotIn(timeline_svg.FAILED, self.svg.read_text())

    def test_two_traces_share_one_scale(self):
        self.run_tool(self.trace, self.trace, "-o", self.svg, "--label", "above")
        text = self.svg.read_text()
        self.assertIn(">above</text>", text)
        self.assertIn(">run</text>", text)
        self.assertEqual(text.count(">ms</text>"), 1)

    def test_bad_files_and_windows_are_refused_with_a_reason(self):
        bad = self.folder / "bad.json"
        for content in ("", "[]", "{}", '{"traceEvents":[]}', '{"traceEvents":[{"ts":1}]}',
                        '{"traceEvents":[{"ph":"X","pid":2,"ts":"a"}]}'):
            bad.write_text(content)
            status, error = self.run_tool(bad)
            self.assertEqual(status, 1, content)
            self.assertIn("bad.json is no timeline of bevy", error)
        status, error = self.run_tool(self.folder / "absent.json")
        self.assertEqual(status, 1)
        self.assertIn("No such file", error)
        status, error = self.run_tool(self.trace, "--from", 9)
        self.assertEqual(status, 1)
        self.assertIn("nothing lies between 9 and 4 ms", error)


if __name__ == "__main__":
    unittest.main()
