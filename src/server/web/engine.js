// The live view of the engine: who waits for what, how busy link and processor are, what is cached.
// It asks the server twice a second while it is shown, and draws differences of counters.

const POINTS = 120;  // of the timeline: a minute
const EVERY_MS = 500;
const SVG = "http://www.w3.org/2000/svg";
const LINES = [["link", "reading"], ["compute", "computing"], ["stall", "stalled"]];

const byId = (id) => document.getElementById(id);

function node(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined)
        made.textContent = text;
    if (className)
        made.className = className;
    return made;
}

function bytes(count) {
    const units = ["B", "kB", "MB", "GB"];
    let unit = 0;
    while (count >= 1000 && unit + 1 < units.length) {
        count /= 1000;
        unit++;
    }
    return `${count.toPrecision(3)} ${units[unit]}`;
}

const percent = (part) => `${Math.round(100 * Math.min(1, Math.max(0, part)))} %`;

// Rates between two readings.
function between(before, now) {
    const seconds = Math.max(now.seconds.wall - before.seconds.wall, 1e-6);
    const demands = now.expert_hits + now.expert_misses - before.expert_hits - before.expert_misses;
    return {
        link: (now.seconds.reading - before.seconds.reading) / seconds,
        compute: (now.seconds.computing - before.seconds.computing) / seconds,
        stall: (now.seconds.stalled - before.seconds.stalled) / seconds,
        tokens: (now.tokens.generated - before.tokens.generated) / seconds,
        bytes: (now.bytes_read - before.bytes_read) / seconds,
        hits: demands > 0 ? (now.expert_hits - before.expert_hits) / demands : null,
    };
}

function drawNumbers(now, rates) {
    const running = now.requests.filter((request) => request.slot !== null).length;
    const cells = [
        ["tokens per second", rates.tokens.toFixed(1)],
        ["requests running", `${running} of ${now.slots}`],
        ["waiting in line", String(now.requests.length - running)],
        ["experts found in memory", rates.hits === null ? "\u2013" : percent(rates.hits)],
        ["read per second", bytes(rates.bytes)],
        ["link busy", percent(rates.link)],
        ["processor busy", percent(rates.compute)],
        ["stalled for experts", percent(rates.stall)],
    ];
    byId("numbers").replaceChildren(...cells.map(([name, value]) => {
        const cell = node("div");
        cell.append(node("dt", name), node("dd", value));
        return cell;
    }));
}

function drawRequests(now) {
    const rows = now.requests.map((request) => {
        const row = node("tr");
        row.append(
            node("td", String(request.id)),
            node("td", request.state, `state-${request.state}`),
            node("td", request.slot === null ? "\u2013" : `${request.layer} of ${now.experts.layers}`),
            node("td", request.missing_experts === 0 ? "\u2013"
                : `${request.missing_experts} expert${request.missing_experts === 1 ? "" : "s"}`),
            node("td", `${request.prompt_tokens_processed} of ${request.prompt_tokens}`),
            node("td", String(request.generated_tokens)));
        return row;
    });
    if (rows.length === 0) {
        const row = node("tr");
        const cell = node("td", "nothing runs", "muted");
        cell.colSpan = 6;
        row.append(cell);
        rows.push(row);
    }
    byId("requests").replaceChildren(...rows);
}

function drawCache(now) {
    const { in_memory: counts, per_layer: all, room_for: room, layers } = now.experts;
    const total = counts.reduce((sum, count) => sum + count, 0);
    byId("cache").setAttribute("aria-label",
        `${total} of ${all * layers} experts are in memory, which has room for ${room}`);
    byId("cache").replaceChildren(...counts.map((count, layer) => {
        const column = node("span");
        column.title = `layer ${layer}: ${count} of ${all}`;
        const part = node("i");
        part.style.height = `${100 * count / all}%`;  // a property, not markup: the policy allows it
        column.append(part);
        return column;
    }));
}

function drawTimeline(history) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 120 100");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "How busy link and processor were in the last minute");
    for (const [kind] of LINES) {
        const line = document.createElementNS(SVG, "polyline");
        const shift = POINTS - history.length;
        line.setAttribute("class", kind);
        line.setAttribute("points", history.map((rates, i) =>
            `${shift + i},${97 - 94 * Math.min(1, Math.max(0, rates[kind]))}`).join(" "));
        svg.append(line);
    }
    const legend = node("ul");
    legend.append(...LINES.map(([kind, name]) => node("li", name, kind)));
    byId("timeline").replaceChildren(svg, legend);
}

// `read()` gives what GET /engine gives; `visible()` says whether anybody looks.
export function showEngine({ read, visible }) {
    const history = [];
    let before = null;
    const tick = async () => {
        if (visible() && !document.hidden) {
            try {
                const now = await read();
                // A server that was started again counts from zero.
                if (before && now.seconds.wall > before.seconds.wall) {
                    const rates = between(before, now);
                    history.push(rates);
                    history.splice(0, history.length - POINTS);
                    drawNumbers(now, rates);
                    drawTimeline(history);
                }
                drawRequests(now);
                drawCache(now);
                before = now;
            } catch (error) {
                byId("numbers").replaceChildren(node("div", error.message));
                before = null;
            }
        }
        setTimeout(tick, EVERY_MS);
    };
    tick();
}
