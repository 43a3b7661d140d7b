"""Whether what a page shows can be seen: no text is cut off without a way to see it, none lies over another, and what is to be
clicked is not covered."""

from __future__ import annotations

from playwright.async_api import Page

__all__ = ["misfits"]

# In CSS pixels. LEAST: lines of text overlap by a pixel or two, because a font's box is higher than its letters.
MISFITS = """() => {
  const LEAST = 4;
  const found = [];
  const name = (node) => {
    const words = (node.textContent || node.value || node.placeholder || "").trim().replace(/\\s+/g, " ").slice(0, 40);
    return `${node.nodeName.toLowerCase()}${node.id ? "#" + node.id : ""}.${[...node.classList].join(".")} "${words}"`;
  };
  const isShown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const open = document.querySelector("dialog[open]");
  const root = open || document.body;
  // What a region that scrolls, or one that cuts on purpose, leaves of a rectangle.
  const left = (rect, node) => {
    let box = { left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom };
    for (let each = node; each && each !== document.documentElement; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (style.display === "inline" || style.display === "contents") continue;
      if (style.overflowX === "visible" && style.overflowY === "visible" && style.clipPath === "none") continue;
      const own = each.getBoundingClientRect();
      if (style.clipPath !== "none" && own.width <= 1.5) return null;
      if (style.overflowX !== "visible") {
        box.left = Math.max(box.left, own.left);
        box.right = Math.min(box.right, own.right);
      }
      if (style.overflowY !== "visible") {
        box.top = Math.max(box.top, own.top);
        box.bottom = Math.min(box.bottom, own.bottom);
      }
      if (box.right - box.left < 1 || box.bottom - box.top < 1) return null;
    }
    return box;
  };
  // Text that is cut: hidden overflow without an ellipsis, a scroll bar or a title that has it all.
  for (const node of root.querySelectorAll("*")) {
    if (!isShown(node) || node.closest("svg, canvas, .uplot, .hidden, select")) continue;
    if (!node.childNodes.length || ![...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim())) continue;
    const style = getComputedStyle(node);
    if (!/hidden|clip/.test(style.overflowX + style.overflowY) || style.textOverflow === "ellipsis") continue;
    const isHigher = /hidden|clip/.test(style.overflowY) && node.scrollHeight > node.clientHeight + LEAST;
    const isWider = style.overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1;
    if (isHigher || isWider) found.push("cut off: " + name(node));
  }
  // Text over text.
  const rects = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    const parent = text.parentElement;
    if (!text.data.trim() || !isShown(parent)) continue;
    if (parent.closest("svg, canvas, .uplot, .hidden, select, option, script, style, template")) continue;
    if (!open && parent.closest("dialog")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const rect of range.getClientRects()) {
      const box = left(rect, parent);
      if (box && box.right - box.left > 1 && box.bottom - box.top > 1) rects.push({ box, text, parent });
    }
  }
  const isFixed = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const { position } = getComputedStyle(each);
      if (position === "fixed" || position === "sticky") return true;
    }
    return false;
  };
  rects.sort((a, b) => a.box.top - b.box.top);
  for (let i = 0; i < rects.length; i += 1)
    for (let j = i + 1; j < rects.length && rects[j].box.top < rects[i].box.bottom; j += 1) {
      const [a, b] = [rects[i], rects[j]];
      if (a.text === b.text) continue;
      const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (across < LEAST || down < LEAST + 2 || isFixed(a.parent) || isFixed(b.parent)) continue;
      found.push(`overlap by ${Math.round(across)} x ${Math.round(down)}: ${name(a.parent)} and ${name(b.parent)}`);
    }
  // What is to be clicked lies free once it is scrolled to.
  const before = [scrollX, scrollY];
  for (const node of root.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
    if (!isShown(node) || node.disabled || node.closest(".hidden") || node.matches(".hidden, .skip")) continue;
    if (!open && node.closest("dialog")) continue;
    node.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const own = node.getClientRects()[0];
    if (!own || own.width < 2 || own.height < 2) continue;
    const box = left(own, node);
    if (!box) continue;
    const at = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    if (!at || at === node || node.contains(at) || at.contains(node) || at.closest("label")?.control === node) continue;
    if (at.closest("#stale")) continue; // stays in view; the page scrolls below it
    if (node.labels && [...node.labels].some((each) => each.contains(at))) continue;
    found.push(`covered: ${name(node)} by ${name(at)}`);
  }
  scrollTo(...before);
  return [...new Set(found)].slice(0, 10);
}"""


async def misfits(page: Page) -> list[str]:
    """Returns what cannot be seen of the page that is open, or of its dialog, a sentence each; the first ten."""
    found: list[str] = await page.evaluate(MISFITS)
    return found
