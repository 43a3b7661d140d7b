// Live pages: one stream of server-sent events for the page. The server renders the live elements with the templates of the page;
// an event holds those that changed, by id, and each is merged into the page: an element that stays keeps its focus, its scroll
// position and its place. Values for lines come with the event "waypost:live".
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  if (!stream) return;
  const group = (n) =>
    Math.round(n)
      .toString()
      .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  // Numbers at the axes of plots; all others are formatted by the server.
  const number = (v) =>
    v === null || v === undefined ? "–" : Math.abs(v) >= 100 || Number.isInteger(v) ? group(v) : v.toFixed(1);
  window.waypost.formats.number = number;

  // -- merging

  const KEPT = new Set(["open", "aria-pressed"]); // attributes that belong to the reader
  const mergeAttributes = (old, fresh) => {
    if (old.classList.contains("current")) fresh.classList.add("current"); // the row marked with j and k
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of Array.from(old.attributes))
      if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  };
  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined);
  const fits = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
  const mergeChildren = (old, fresh) => {
    const next = Array.from(fresh.childNodes);
    const keys = new Set(next.map(keyOf));
    const keyed = new Map();
    for (const child of Array.from(old.childNodes)) {
      const key = keyOf(child);
      if (key === undefined) continue;
      if (keys.has(key)) keyed.set(key, child);
      else child.remove();
    }
    let place = old.firstChild;
    for (const node of next) {
      const known = keyed.get(keyOf(node));
      if (known && known !== place) old.insertBefore(known, place);
      const there = known || place;
      if (there && fits(there, node)) {
        place = there.nextSibling;
        merge(there, node);
      } else old.insertBefore(node, place);
    }
    while (place) {
      const after = place.nextSibling;
      place.remove();
      place = after;
    }
  };
  const merge = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    mergeAttributes(old, fresh);
    mergeChildren(old, fresh);
  };
  const swap = (id, html) => {
    const old = document.getElementById(id);
    if (!old) return;
    const template = document.createElement("template");
    template.innerHTML = html.trim();
    merge(old, template.content.firstElementChild);
  };

  // -- what only the browser knows: that the portal itself is gone

  const report = (message, notice) => {
    const status = document.getElementById("core-status");
    const stale = document.getElementById("stale");
    status.dataset.state = "unknown";
    if (status.textContent !== message) status.textContent = message;
    stale.hidden = false;
    if (stale.textContent !== notice) stale.textContent = notice;
  };
  // A refused stream gives no reason: another page of the portal does.
  const reasonOfRefusal = async () => {
    try {
      const answer = await fetch(document.body.dataset.history + "?destination=", { redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 403)
        return ["signed out", "You are signed out; what you see is no longer live. Reload the page to sign in."];
      if (answer.ok) return ["not live", "Too many live pages are open; what you see is not live. The page tries again."];
    } catch {
      /* the portal is not running */
    }
    return ["no answer", "The portal does not answer; what you see is no longer live. The page tries again."];
  };
  let failures = 0;
  const listen = () => {
    const source = new EventSource(stream);
    source.addEventListener("live", (event) => {
      failures = 0;
      const data = JSON.parse(event.data);
      for (const [id, html] of Object.entries(data.fragments)) swap(id, html);
      document.dispatchEvent(new CustomEvent("waypost:live", { detail: data }));
    });
    source.onerror = async () => {
      failures += 1;
      const closed = source.readyState === EventSource.CLOSED;
      if (closed) setTimeout(listen, Math.min(30000, 1000 * 2 ** Math.min(failures, 5)));
      if (closed || failures > 1) {
        const [message, notice] = await reasonOfRefusal();
        if (failures) report("portal: " + message, notice);
      }
    };
    addEventListener("pagehide", () => source.close(), { once: true });
  };
  listen();
})();
