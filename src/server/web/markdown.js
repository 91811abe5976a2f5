// Markdown as models write it, to nodes of the page. Text becomes text nodes and nothing else: there
// is no way from a model's words to markup, attributes or addresses.

const BLOCK = {
    fence: /^\s*(```+|~~~+)\s*([\w+#.-]*)\s*$/,
    heading: /^(#{1,6})\s+(.*)$/,
    bullet: /^\s*[-*+]\s+(.*)$/,
    number: /^\s*\d{1,9}[.)]\s+(.*)$/,
    quote: /^>\s?(.*)$/,
    rule: /^\s*([-*_])(\s*\1){2,}\s*$/,
};
const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=\S)([^*]*?\S)\*/;

function element(page, name, ...children) {
    const node = page.createElement(name);
    node.append(...children);
    return node;
}

// Code, strong and emphasised words of one paragraph, as an array of nodes and strings.
export function inline(page, text) {
    const nodes = [];
    let rest = text;
    for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
        if (found.index > 0)
            nodes.push(rest.slice(0, found.index));
        if (found[1])
            nodes.push(element(page, "code", found[2]));
        else if (found[3])
            nodes.push(element(page, "strong", ...inline(page, found[3])));
        else
            nodes.push(element(page, "em", ...inline(page, found[4])));
        rest = rest.slice(found.index + found[0].length);
    }
    if (rest)
        nodes.push(rest);
    return nodes;
}

function codeBlock(page, text, copy) {
    const figure = element(page, "figure", element(page, "pre", element(page, "code", text)));
    if (copy) {
        const button = element(page, "button", "Copy");
        button.type = "button";
        button.addEventListener("click", () => copy(text, button));
        figure.append(button);
    }
    return figure;
}

// Nodes of a whole text. `copy(text, button)` is called by the buttons of code blocks.
export function markdown(page, text, copy) {
    const nodes = [];
    let paragraph = [];
    let list = null;
    const close = () => {
        if (paragraph.length > 0)
            nodes.push(element(page, "p", ...inline(page, paragraph.join("\n"))));
        paragraph = [];
        list = null;
    };
    const item = (kind, words) => {
        if (!list || list.kind !== kind) {
            close();
            list = { kind, node: element(page, kind) };
            nodes.push(list.node);
        }
        list.node.append(element(page, "li", ...inline(page, words)));
    };
    const lines = text.split("\n");
    for (let i = 0; i < lines.length; i++) {
        const line = lines[i];
        const fence = BLOCK.fence.exec(line);
        if (fence) {
            close();
            const code = [];
            for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]); i++)
                code.push(lines[i]);
            nodes.push(codeBlock(page, code.join("\n"), copy));
            continue;
        }
        const heading = BLOCK.heading.exec(line);
        const bullet = BLOCK.bullet.exec(line);
        const number = BLOCK.number.exec(line);
        const quote = BLOCK.quote.exec(line);
        if (line.trim() === "") {
            close();
        } else if (BLOCK.rule.test(line)) {
            close();
            nodes.push(element(page, "hr"));
        } else if (heading) {
            close();
            nodes.push(element(page, heading[1].length < 3 ? "h3" : "h4", ...inline(page, heading[2])));
        } else if (bullet) {
            item("ul", bullet[1]);
        } else if (number) {
            item("ol", number[1]);
        } else if (quote) {
            close();
            nodes.push(element(page, "blockquote", ...inline(page, quote[1])));
        } else {
            list = null;
            paragraph.push(line);
        }
    }
    close();
    return nodes;
}
