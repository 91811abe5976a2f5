// The page of bevy serve: chats side by side, each with its own stream, and a live view of the
// engine. Chats are kept by the browser; the server keeps nothing.
import { markdown } from "/markdown.js";
import { showEngine } from "/engine.js";

const CHATS = "bevy-chats";
const SETTINGS = "bevy-settings";
const KEY = "bevy-api-key";
const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];
const byId = (id) => document.getElementById(id);

function stored(store, name, otherwise) {
    try {
        return JSON.parse(store.getItem(name)) ?? otherwise;
    } catch {
        return otherwise;
    }
}
function keep(store, name, value) {
    try {
        store.setItem(name, JSON.stringify(value));
    } catch {
        notice("The browser keeps nothing for this page: chats will be gone with it.");
    }
}

function notice(text) {
    byId("notice").textContent = text;
    byId("notice").hidden = !text;
}

// --- server -----------------------------------------------------------------------------------

function headers() {
    const key = stored(sessionStorage, KEY, "");
    return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

// A reply that is fine, or an Error with the server's own words.
async function ask(path, options = {}) {
    const reply = await fetch(path, { ...options, headers: headers() });
    if (reply.ok)
        return reply;
    let words = `${reply.status} ${reply.statusText}`;
    try {
        words = (await reply.json()).error.message;
    } catch {
        // It was not one of the server's own errors.
    }
    if (reply.status === 401)
        askForKey();
    throw new Error(words);
}

function askForKey() {
    notice("This server wants an API key: give it in the settings.");
    openSettings(true);
    byId("api-key").focus();
}

// The data of each server-sent event.
async function* events(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done)
            return;
        rest += value;
        const lines = rest.split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (line.startsWith("data: ") && line !== "data: [DONE]")
                yield JSON.parse(line.slice(6));
        }
    }
}

// --- settings ---------------------------------------------------------------------------------

function settings() {
    const chosen = { messages: [] };
    for (const name of NUMBERS) {
        const text = byId(name).value;
        if (text !== "")
            chosen[name] = Number(text);
    }
    if (byId("system").value.trim())
        chosen.messages.push({ role: "system", content: byId("system").value });
    return chosen;
}

function openSettings(open) {
    byId("settings").hidden = !open;
    byId("show-settings").setAttribute("aria-expanded", String(open));
}

function loadSettings() {
    const kept = stored(localStorage, SETTINGS, {});
    for (const name of [...NUMBERS, "system"])
        byId(name).value = kept[name] ?? "";
    byId("api-key").value = stored(sessionStorage, KEY, "");
    byId("settings").addEventListener("input", () => {
        keep(localStorage, SETTINGS,
             Object.fromEntries([...NUMBERS, "system"].map((name) => [name, byId(name).value])));
        keep(sessionStorage, KEY, byId("api-key").value);
    });
    byId("settings").addEventListener("submit", (event) => event.preventDefault());
    byId("api-key").addEventListener("change", connect);
}

// --- chats ------------------------------------------------------------------------------------

const chats = [];

function keepChats() {
    keep(localStorage, CHATS, chats.map(({ title, messages }) => ({ title, messages })));
}

async function copy(text, button) {
    try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
    } catch {
        button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function fill(node, message) {
    node.className = `message ${message.role}`;
    node.replaceChildren();
    if (message.role === "user") {
        node.textContent = message.content;
        return;
    }
    if (message.thoughts) {
        const details = document.createElement("details");
        const summary = document.createElement("summary");
        summary.textContent = "Thoughts";
        details.append(summary, message.thoughts);
        node.append(details);
    }
    node.append(...markdown(document, message.content, copy));
    for (const [kind, words] of [["error", message.error], ["foot", message.foot]]) {
        if (!words)
            continue;
        const line = document.createElement("div");
        line.className = kind;
        line.textContent = words;
        node.append(line);
    }
}

class Chat {
    constructor({ title = "", messages = [] } = {}) {
        this.title = title;
        this.messages = messages;
        this.stopper = null;
        this.node = byId("chat-template").content.firstElementChild.cloneNode(true);
        this.list = this.node.querySelector(".messages");
        this.entry = this.node.querySelector("textarea");
        const name = this.node.querySelector(".title");
        name.value = title;
        name.placeholder = "New chat";
        name.addEventListener("input", () => { this.title = name.value; keepChats(); });
        this.node.querySelector(".remove").addEventListener("click", () => this.remove());
        this.node.querySelector(".stop").addEventListener("click", () => this.stop());
        this.node.querySelector("form").addEventListener("submit", (event) => {
            event.preventDefault();
            this.send();
        });
        this.entry.addEventListener("keydown", (event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                this.send();
            }
        });
        this.node.addEventListener("keydown", (event) => {
            if (event.key === "Escape")
                this.stop();
        });
        for (const message of messages)
            fill(this.list.appendChild(document.createElement("div")), message);
        byId("chats").append(this.node);
        this.list.scrollTop = this.list.scrollHeight;
    }

    remove() {
        this.stop();
        chats.splice(chats.indexOf(this), 1);
        this.node.remove();
        keepChats();
        if (chats.length === 0)
            addChat();
    }

    stop() {
        this.stopper?.abort();
    }

    busy(busy) {
        this.node.querySelector(".send").hidden = busy;
        this.node.querySelector(".stop").hidden = !busy;
    }

    add(message) {
        this.messages.push(message);
        const node = this.list.appendChild(document.createElement("div"));
        fill(node, message);
        this.list.scrollTop = this.list.scrollHeight;
        return node;
    }

    async send() {
        const words = this.entry.value.trim();
        if (!words || this.stopper)
            return;
        this.entry.value = "";
        if (!this.title) {
            this.title = words.slice(0, 40);
            this.node.querySelector(".title").value = this.title;
        }
        this.add({ role: "user", content: words });
        const body = settings();
        for (const { role, content } of this.messages) {
            if (content)
                body.messages.push({ role, content });
        }
        const reply = { role: "assistant", content: "" };
        const node = this.add(reply);
        this.stopper = new AbortController();
        this.busy(true);
        try {
            await this.stream({ ...body, stream: true }, reply, node);
        } catch (error) {
            if (error.name === "AbortError")
                reply.foot = "stopped";
            else
                reply.error = error.message;
        }
        this.stopper = null;
        this.busy(false);
        fill(node, reply);
        keepChats();
        this.entry.focus();
    }

    async stream(body, reply, node) {
        const began = performance.now();
        const answer = await ask("/v1/chat/completions", {
            method: "POST", body: JSON.stringify(body), signal: this.stopper.signal });
        let waiting = false;
        for await (const event of events(answer)) {
            if (event.error)
                throw new Error(event.error.message);
            const delta = event.choices?.[0]?.delta ?? {};
            reply.content += delta.content ?? "";
            if (delta.reasoning_content)
                reply.thoughts = (reply.thoughts ?? "") + delta.reasoning_content;
            if (event.timings) {
                const seconds = (performance.now() - began) / 1000;
                reply.foot = `${event.timings.predicted_n} tokens, ` +
                    `${event.timings.predicted_per_second.toFixed(1)} per second, ${seconds.toFixed(1)} s`;
            }
            if (waiting)
                continue;
            // Once per frame is enough for the eye.
            waiting = true;
            requestAnimationFrame(() => {
                waiting = false;
                const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
                fill(node, reply);
                if (atEnd)
                    this.list.scrollTop = this.list.scrollHeight;
            });
        }
    }
}

function addChat(kept) {
    const chat = new Chat(kept);
    chats.push(chat);
    return chat;
}

// --- the page ---------------------------------------------------------------------------------

function show(view) {
    for (const name of ["chats", "engine"]) {
        byId(name).hidden = name !== view;
        byId(`show-${name}`).setAttribute("aria-pressed", String(name === view));
    }
}

async function connect() {
    try {
        const models = await (await ask("/v1/models")).json();
        byId("model").textContent = models.data[0].id;
        notice("");
    } catch (error) {
        byId("model").textContent = error.message;
        setTimeout(connect, 2000);
    }
}

loadSettings();
for (const kept of stored(localStorage, CHATS, []))
    addChat(kept);
if (chats.length === 0)
    addChat();
byId("show-chats").addEventListener("click", () => show("chats"));
byId("show-engine").addEventListener("click", () => show("engine"));
byId("show-settings").addEventListener("click", () => openSettings(byId("settings").hidden));
byId("add-chat").addEventListener("click", () => {
    show("chats");
    const chat = addChat();
    chat.node.scrollIntoView();
    chat.entry.focus();
});
connect();
showEngine({ read: async () => (await ask("/engine")).json(), visible: () => !byId("engine").hidden });
chats[0].entry.focus();
