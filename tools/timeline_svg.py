#!/usr/bin/env python3
"""Draws a timeline that `bevy run --trace` has recorded as one SVG picture.

From top to bottom: the reads on the link (a lane per ticket), the steps of the processor, and one
row per request. A colour stands for a stage, that is for how deep in the model a step, a read or a
request is; the height of a step says how many requests share it. With two traces the second is
drawn below the first on the same time scale.

The numbers above each panel are taken from the trace, for the part that is shown: busy and stalled
shares of the time, and requests that went through the output head (one token each).
"""

import argparse
import bisect
import collections
import html
import json
import pathlib
import sys

PID_REQUESTS, PID_COMPUTE, PID_LINK = 1, 2, 3  # as in src/engine/trace_recorder.cc

WIDTH = 1200
LEFT, RIGHT = 104, 24
LANE, LANE_GAP = 8, 2
STEP = 40
ROW, ROW_GAP = 13, 3
SECTION_GAP = 14

INK, FAINT, GRID, PAPER, FRAME = "#22262b", "#5b646e", "#dfe3e7", "#fcfcfa", "#c9ced4"
WAITING, READY, QUEUED, FAILED = "#f3c9c2", "#d5dae0", "#f0f1f3", "#c1121f"
# First to last stage. Dark enough on paper, and told apart by lightness as well as by hue.
SCALE = ["#3b2a6b", "#2f62a8", "#2a8f9d", "#4c9f4c", "#c9a227", "#d9702e"]

Span = collections.namedtuple("Span", "start end")
Read = collections.namedtuple("Read", "start end ticket layer ok")
Step = collections.namedtuple("Step", "start end stage sequences")
Phase = collections.namedtuple("Phase", "start end name")


class TraceError(Exception):
    """A file that is no timeline of ours; the text is for the user."""


class Trace:
    """The events of one file. Times are milliseconds since its first event."""

    def __init__(self, events):
        self.reads, self.steps = [], []
        self.phases = collections.defaultdict(list)  # request -> [Phase]
        self.first_tokens = {}                       # request -> time
        times = [event["ts"] for event in events if "ts" in event]
        if not times:
            raise TraceError("it holds no events with a time")
        self.zero = min(times)
        for event in events:
            self.add(event)
        self.reads.sort()
        self.steps.sort()
        if not self.steps:
            raise TraceError("it holds no steps of the processor")
        self.end = max(span.end for spans in [self.reads, self.steps, *self.phases.values()]
                       for span in spans)
        self.stage_max = max(step.stage for step in self.steps)
        self.tickets = 1 + max((read.ticket for read in self.reads), default=0)

    def add(self, event):
        kind, pid = event.get("ph"), event.get("pid")
        start = (event.get("ts", self.zero) - self.zero) / 1000
        end = start + event.get("dur", 0) / 1000
        args = event.get("args", {})
        if kind == "X" and pid == PID_LINK:
            self.reads.append(Read(start, end, event["tid"], args["layer"], args["ok"]))
        elif kind == "X" and pid == PID_COMPUTE:
            self.steps.append(Step(start, end, args["stage"], args["sequences"]))
        elif kind == "X" and pid == PID_REQUESTS:
            self.phases[event["tid"]].append(Phase(start, end, event["name"]))
        elif kind == "B" and pid == PID_REQUESTS and event.get("name") == "decode":
            self.first_tokens[event["tid"]] = start

    def stage_at(self, span):
        """The stage of the step that shares most time with the span; nothing without one."""
        at = bisect.bisect_right(self.steps, (span.start,))
        near = self.steps[max(at - 2, 0):at + 2]
        shared = [(min(s.end, span.end) - max(s.start, span.start), s.stage) for s in near]
        best = max(shared, default=(0, 0))
        return best[1] if best[0] > 0 else None


def load_trace(path):
    try:
        document = json.loads(pathlib.Path(path).read_text())
        return Trace(document["traceEvents"])
    except OSError as error:
        raise TraceError(f"{path} can't be read: {error.strerror}") from error
    except (TraceError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{path} is no timeline of bevy: {error}") from error


# --- sums over time -------------------------------------------------------------------------------

def merged(spans):
    """The same time without overlaps, in order."""
    result = []
    for start, end in sorted((span[0], span[1]) for span in spans):
        if result and start <= result[-1].end:
            result[-1] = Span(result[-1].start, max(end, result[-1].end))
        else:
            result.append(Span(start, end))
    return result


def clipped(spans, window):
    for span in spans:
        start, end = max(span.start, window.start), min(span.end, window.end)
        if start < end:
            yield span._replace(start=start, end=end)


def length(spans):
    return sum(span.end - span.start for span in spans)


def both(left, right):
    """Time that lies in both; each without overlaps and in order."""
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i].end, right[j].end) - max(left[i].start, right[j].start))
        if left[i].end < right[j].end:
            i += 1
        else:
            j += 1
    return total


def summary(trace, window):
    """Busy and stalled shares of the window as far as the trace reaches, and what came out of the
    head in it."""
    window = Span(window.start, max(min(window.end, trace.end), window.start + 1e-6))
    whole = length([window])
    busy = merged(clipped(trace.steps, window))
    link = merged(clipped(trace.reads, window))
    waiting = merged(span for phases in trace.phases.values()
                     for span in clipped(phases, window) if span.name == "waiting")
    stalled = length(waiting) - both(waiting, busy)
    tokens = sum(step.sequences for step in trace.steps
                 if step.stage == trace.stage_max and window.start <= step.end <= window.end)
    return {"processor busy": length(busy) / whole, "link busy": length(link) / whole,
            "stalled": stalled / whole, "tokens": tokens}


# --- drawing --------------------------------------------------------------------------------------

def stage_colour(stage, stage_max):
    position = stage / max(stage_max, 1) * (len(SCALE) - 1)
    index = min(int(position), len(SCALE) - 2)
    part = position - index
    channels = []
    for offset in (1, 3, 5):
        low = int(SCALE[index][offset:offset + 2], 16)
        high = int(SCALE[index + 1][offset:offset + 2], 16)
        channels.append(round(low + (high - low) * part))
    return "#{:02x}{:02x}{:02x}".format(*channels)


class Picture:
    """SVG elements, and the time scale that all panels share."""

    def __init__(self, window):
        self.window = window
        self.parts = []
        self.y = 0.0

    def x(self, time):
        share = (time - self.window.start) / (self.window.end - self.window.start)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def rect(self, x, y, width, height, fill, extra=""):
        self.parts.append(f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
                          f'height="{height:.2f}" fill="{fill}"{extra}/>')

    def line(self, x1, y1, x2, y2, stroke, width=1.0):
        self.parts.append(f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" '
                          f'stroke="{stroke}" stroke-width="{width}"/>')

    def text(self, x, y, words, size=12, fill=INK, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" fill="{fill}" '
                          f'text-anchor="{anchor}" font-weight="{weight}">'
                          f'{html.escape(words)}</text>')

    def bars(self, bars, y):
        """Bars of (span, fill, height), bottom-aligned at y. What is too narrow to be seen is
        joined with its neighbour of the same look, so a long trace stays a small picture."""
        open_bar = None  # [x1, x2, look]
        for span, *look in bars:
            x1, x2 = self.x(span.start), self.x(span.end)
            if open_bar and open_bar[2] == look and x1 - open_bar[1] < 0.25:
                open_bar[1] = max(open_bar[1], x2)
                continue
            if open_bar and x2 - open_bar[1] < 0.25:
                continue  # all but hidden behind the last one
            self.close_bar(open_bar, y)
            open_bar = [x1, x2, look]
        self.close_bar(open_bar, y)

    def close_bar(self, bar, y):
        if bar:
            x1, x2, (fill, height) = bar
            gap = 0.4 if x2 - x1 > 2 else 0.0  # so that neighbours are told apart
            self.rect(x1, y - height, max(x2 - x1 - gap, 0.3), height, fill)


def draw_link(picture, trace, stage_max):
    for ticket in range(trace.tickets):
        reads = [read for read in trace.reads if read.ticket == ticket]
        picture.y += LANE
        picture.bars(((read, stage_colour(read.layer + 1, stage_max) if read.ok else FAILED, LANE)
                      for read in clipped(reads, picture.window)), picture.y)
        picture.y += LANE_GAP
    height = trace.tickets * (LANE + LANE_GAP)
    picture.text(LEFT - 10, picture.y - height / 2 + 3, "link", 12, INK, "end")
    picture.y += SECTION_GAP


def draw_steps(picture, trace, stage_max, sequences_max):
    picture.y += STEP
    picture.line(LEFT, picture.y, WIDTH - RIGHT, picture.y, FRAME)
    picture.bars(((step, stage_colour(step.stage, stage_max),
                   STEP * max(step.sequences, 0.25) / sequences_max)
                  for step in clipped(trace.steps, picture.window)), picture.y)
    picture.text(LEFT - 10, picture.y - STEP / 2 + 4, "processor", 12, INK, "end")
    picture.y += SECTION_GAP + 2


def draw_request(picture, trace, request, stage_max):
    fills = {"waiting": WAITING, "ready": READY, "queued": QUEUED}

    def look(phase):
        if phase.name != "computing":
            return fills.get(phase.name, READY)
        stage = trace.stage_at(phase)
        return READY if stage is None else stage_colour(stage, stage_max)

    phases = sorted(trace.phases[request])
    picture.y += ROW
    picture.bars(((phase, look(phase), ROW) for phase in clipped(phases, picture.window)),
                 picture.y)
    first = trace.first_tokens.get(request)
    if first is not None and picture.window.start <= first <= picture.window.end:
        x = picture.x(first)
        picture.line(x, picture.y - ROW - 1.5, x, picture.y + 1.5, INK, 2)
    picture.text(LEFT - 10, picture.y - 3, f"request {request}", 11, INK, "end")
    picture.y += ROW_GAP


def draw_panel(picture, trace, label, options):
    stage_max, sequences_max, requests_max = options
    numbers = summary(trace, picture.window)
    facts = [f"{name} {numbers[name]:.0%}" for name in ("processor busy", "link busy", "stalled")]
    facts.append(f"{numbers['tokens']} tokens")
    if trace.end <= picture.window.end:
        facts.append(f"all done after {trace.end:.0f} ms")
    picture.y += 18
    picture.text(LEFT, picture.y, label, 14, INK, weight="bold")
    picture.text(WIDTH - RIGHT, picture.y, ", ".join(facts), 12, FAINT, "end")
    picture.y += 10
    top = picture.y
    mark = len(picture.parts)
    draw_link(picture, trace, stage_max)
    draw_steps(picture, trace, stage_max, sequences_max)
    requests = sorted(request for request, phases in trace.phases.items()
                      if any(clipped(phases, picture.window)))
    for request in requests[:requests_max]:
        draw_request(picture, trace, request, stage_max)
    if len(requests) > requests_max:
        picture.y += ROW
        picture.text(LEFT, picture.y - 2, f"and {len(requests) - requests_max} more requests", 11,
                     FAINT)
    bars = picture.parts[mark:]
    del picture.parts[mark:]
    for _, x in ticks(picture):  # the grid lies below the bars
        picture.line(x, top, x, picture.y, GRID)
    picture.parts += bars
    picture.y += 6


def ticks(picture):
    """(milliseconds, x) at round numbers, about ten of them."""
    start, end = picture.window
    step = 10.0 ** -6
    while (end - start) / step > 12:
        for factor in (2, 2.5, 2):  # 1, 2, 5, 10
            if (end - start) / step > 12:
                step *= factor
    count = int(start / step)
    while count * step <= end + step * 1e-6:
        if count * step >= start:
            yield count * step, picture.x(count * step)
        count += 1


def draw_axis(picture):
    picture.y += 12
    for time, x in ticks(picture):
        picture.text(x, picture.y, f"{time:.6g}", 11, FAINT, "middle")
    picture.text(LEFT - 40, picture.y, "ms", 11, FAINT, "end")
    picture.y += 14


def draw_legend(picture, stage_max):
    picture.y += 12
    x, y, size = LEFT, picture.y, 11
    for stop in range(48):
        picture.rect(x + stop * 2.5, y - 9, 3.5, 11, stage_colour(stop, 47))
    x += 48 * 2.5 + 8
    words = f"stage 0 to {stage_max} (a stage: experts of one layer, attention of the next)"
    picture.text(x, y, words, size, INK)
    x += 392
    for fill, name in ((WAITING, "waiting for an expert"), (READY, "ready, not computing")):
        picture.rect(x, y - 9, 18, 11, fill)
        picture.text(x + 23, y, name, size, INK)
        x += 158
    picture.line(x + 4, y - 10, x + 4, y + 3, INK, 2)
    picture.text(x + 11, y, "first token", size, INK)
    picture.y += 18
    picture.text(LEFT, picture.y, "Height of a step: requests that share it; the lowest ones only "
                 "compute experts ahead. Red read: failed or cancelled.", size, FAINT)
    picture.y += 14


def draw(traces, labels, window, title="", requests_max=16):
    """The whole picture as SVG text."""
    picture = Picture(window)
    picture.y = 16
    if title:
        picture.y += 14
        picture.text(LEFT, picture.y, title, 17, INK, weight="bold")
        picture.y += 8
    stage_max = max(trace.stage_max for trace in traces)
    sequences_max = max(1, *(step.sequences for trace in traces for step in trace.steps))
    for trace, label in zip(traces, labels):
        draw_panel(picture, trace, label, (stage_max, sequences_max, requests_max))
    draw_axis(picture)
    draw_legend(picture, stage_max)
    height = picture.y + 4
    name = html.escape(title or "timeline: " + ", ".join(labels))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'role="img" font-family="system-ui, DejaVu Sans, Helvetica, Arial, sans-serif">\n'
            f"<title>{name}</title>\n"
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" '
            f'fill="{PAPER}" stroke="{FRAME}"/>\n')
    return head + "\n".join(picture.parts) + "\n</svg>\n"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("trace", help="what bevy run --trace wrote")
    parser.add_argument("second", nargs="?", help="another one, drawn below on the same time scale")
    parser.add_argument("-o", "--output", help="SVG file (default: standard output)")
    parser.add_argument("--title", default="", help="headline of the picture")
    parser.add_argument("--label", action="append", default=[], metavar="TEXT",
                        help="name of a panel, once per trace (default: the file's name)")
    parser.add_argument("--from", dest="start", type=float, default=0.0, metavar="MS",
                        help="begin this long after the first event of each trace")
    parser.add_argument("--to", dest="end", type=float, metavar="MS",
                        help="end there (default: the end of the longer trace)")
    parser.add_argument("--requests", type=int, default=16, metavar="N",
                        help="rows of requests at most (default: 16)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_arguments(arguments)
    paths = [path for path in (options.trace, options.second) if path]
    try:
        traces = [load_trace(path) for path in paths]
    except TraceError as error:
        print(f"timeline_svg: {error}", file=sys.stderr)
        return 1
    end = max(trace.end for trace in traces) if options.end is None else options.end
    if not 0 <= options.start < end:
        print(f"timeline_svg: nothing lies between {options.start:g} and {end:g} ms",
              file=sys.stderr)
        return 1
    labels = options.label + [pathlib.Path(path).stem for path in paths[len(options.label):]]
    svg = draw(traces, labels, Span(options.start, end), options.title, options.requests)
    if options.output:
        pathlib.Path(options.output).write_text(svg)
    else:
        sys.stdout.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
