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

  // -- what only the browser knows: that the portal itself is gone, or that nothing comes from it any more

  const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  let asOf = Date.now() / 1000; // of what is shown: at first, of the page
  const report = (message, reason) => {
    const status = document.getElementById("core-status");
    const stale = document.getElementById("stale");
    const notice =
      reason + " What you see is of " + window.waypost.formats.clock(asOf, CLOCK) + " and no longer live. " + REMEDIES[message];
    status.dataset.state = "unknown";
    if (status.textContent !== "portal: " + message) status.textContent = "portal: " + message;
    stale.hidden = false;
    if (stale.textContent !== notice) stale.textContent = notice;
  };
  const AGAIN = "The page tries again.";
  const REMEDIES = {
    "signed out": "Reload the page to sign in.",
    "not live": AGAIN,
    "no answer": AGAIN + " If it stays so, look on the host whether the portal runs.",
  };
  // A refused stream gives no reason: another page of the portal does.
  const reasonOfRefusal = async () => {
    try {
      const answer = await fetch(document.body.dataset.history + "?destination=", { redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 403) return ["signed out", "You are signed out."];
      if (answer.ok) return ["not live", "Too many live pages are open."];
    } catch {
      /* the portal is not running */
    }
    return ["no answer", "The portal does not answer."];
  };

  // The portal sends an event a second, or one in five while the core does not answer. A stream may fall silent and stay open: a
  // portal that is stopped, a network that is cut. It is opened again then, because a new stream begins with all that is shown.
  const SILENCE_MS = 12000;
  let failures = 0;
  let heard = Date.now();
  let source = null;
  let timer = 0;
  const listen = () => {
    clearTimeout(timer);
    source?.close();
    const opened = new EventSource(stream);
    source = opened;
    opened.addEventListener("live", (event) => {
      failures = 0;
      heard = Date.now();
      const data = JSON.parse(event.data);
      asOf = data.core.as_of || asOf;
      for (const [id, html] of Object.entries(data.fragments)) swap(id, html);
      document.dispatchEvent(new CustomEvent("waypost:live", { detail: data }));
    });
    opened.onerror = async () => {
      failures += 1;
      const closed = opened.readyState === EventSource.CLOSED;
      if (closed && opened === source) timer = setTimeout(listen, Math.min(30000, 1000 * 2 ** Math.min(failures, 5)));
      if (closed || failures > 1) {
        const [message, reason] = await reasonOfRefusal();
        if (failures && opened === source) report(message, reason);
      }
    };
  };
  setInterval(() => {
    if (Date.now() - heard < SILENCE_MS || source.readyState === EventSource.CLOSED) return;
    heard = Date.now();
    report("no answer", "Nothing has come from the portal for " + SILENCE_MS / 1000 + " s.");
    listen();
  }, 1000);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => {
    if (event.persisted) listen();
  });
  listen();
})();
