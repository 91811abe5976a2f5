// markdown.js against a page that is none: what a model writes becomes elements of a short list, and
// text. Run with node: node markdown_test.mjs PATH_OF_MARKDOWN_JS
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { markdown } = await import(pathToFileURL(process.argv[2]));
const ALLOWED = new Set(["p", "strong", "em", "code", "pre", "figure", "button", "ul", "ol", "li",
                         "blockquote", "h3", "h4", "hr"]);

class FakeElement {
    constructor(name) {
        assert.ok(ALLOWED.has(name), `an element ${name}`);
        this.name = name;
        this.children = [];
    }
    append(...children) {
        for (const child of children)
            assert.ok(typeof child === "string" || child instanceof FakeElement);
        this.children.push(...children);
    }
    addEventListener() {}
    get text() {
        return this.children.map((child) => child.text ?? child).join("");
    }
    get shape() {
        const inner = this.children.map((child) => child.shape ?? "t").join(",");
        return inner === "t" || inner === "" ? this.name : `${this.name}(${inner})`;
    }
}
const page = { createElement: (name) => new FakeElement(name) };
const render = (text) => markdown(page, text, () => {});
const shape = (text) => render(text).map((node) => node.shape).join(" ");
const words = (text) => render(text).map((node) => node.text).join("\n");

assert.equal(shape("one\n\ntwo"), "p p");
assert.equal(shape("a **b *c* d** `e`"), "p(t,strong(t,em,t),t,code)");
assert.equal(shape("# x\n\n### y\n- a\n- b\n1. c"), "h3 h4 ul(li,li) ol(li)");
assert.equal(shape("> said\n---"), "blockquote hr");
assert.equal(shape("```py\na *b*\n```\nend"), "figure(pre(code),button) p");
assert.equal(words("```\na\n\n  b\n```"), "a\n\n  bCopy");
assert.equal(shape("```\nnever closed"), "figure(pre(code),button)");
for (const hostile of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>",
                       "[x](javascript:alert(1))", "![x](http://h/x.png)", "<a href=\"//h\">x</a>",
                       "**<b>**", "`</code><script>`", "&lt;script&gt;"]) {
    const plain = hostile.replaceAll("**", "").replaceAll("`", "");
    assert.equal(words(hostile), plain, hostile);
}
// No text takes long, whatever its marks.
const began = performance.now();
for (const mark of ["*", "`", "**", "#", "> ", "- ", "``` ", "*a **b `c"])
    render(mark.repeat(20000));
assert.ok(performance.now() - began < 20000, "marks without end take too long");
console.log("ok");
