// What is live: one stream for the page. Places with data-live="path.of.value" show that value; others listen to "waypost:live".
// Nothing is added or taken away here, so that no page jumps; numbers have places of fixed width.
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  if (!stream) return;
  const status = document.getElementById("core-status");
  const stale = document.getElementById("stale");
  const group = (n) =>
    Math.round(n)
      .toString()
      .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  const span = (s) =>
    s === null || s === undefined
      ? "–"
      : s < 1
        ? Math.round(s * 1000) + " ms"
        : s < 10
          ? s.toFixed(1) + " s"
          : s < 60
            ? Math.round(s) + " s"
            : s < 3600
              ? Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s"
              : s < 86400
                ? Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min"
                : Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
  const size = (b) => {
    for (const u of ["B", "kB", "MB", "GB"]) {
      if (b < 999.5) return (u === "B" || b >= 99.5 ? b.toFixed(0) : b.toFixed(1)) + " " + u;
      b /= 1000;
    }
    return b.toFixed(1) + " TB";
  };
  const formats = {
    number: (v) => (v === null || v === undefined ? "–" : Math.abs(v) >= 100 || Number.isInteger(v) ? group(v) : v.toFixed(1)),
    span,
    size,
    age: (s) => (s < 60 ? Math.max(0, Math.floor(s)) + " s" : span(s)), // of what grows older by the second
    share: (v) => (v === null || v === undefined ? "–" : (v * 100).toFixed(1) + "%"),
    text: (v) => v ?? "–",
  };
  window.waypost = { formats, last: null };
  const at = (data, path) => path.split(".").reduce((value, key) => value?.[key], data);
  const show = (data) => {
    for (const place of document.querySelectorAll("[data-live]")) {
      const value = at(data, place.dataset.live);
      if (value === undefined) continue;
      const words = (formats[place.dataset.format] || formats.number)(value);
      if (place.textContent !== words) place.textContent = words;
    }
  };
  const say = (state, words, notice) => {
    status.dataset.state = state;
    if (status.textContent !== words) status.textContent = words;
    stale.hidden = !notice;
    if (notice && stale.textContent !== notice) stale.textContent = notice;
  };
  // What is shown is of the last answer there was; of the day before, too, when the portal itself was started since.
  const age = (core) => {
    if (core.as_of === null) return " Nothing is known of it yet.";
    const at = new Date(core.as_of * 1000);
    const today = at.toDateString() === new Date().toDateString();
    return (
      " What you see is " +
      formats.age(core.age_s) +
      " old, of " +
      (today ? at.toLocaleTimeString("en-GB") : at.toLocaleString("en-GB")) +
      "."
    );
  };
  // A stream that is refused does not say why: another page of the same room does.
  const whyRefused = async () => {
    try {
      const answer = await fetch(stream.replace(/stream$/, "history") + "?destination=", { redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 403)
        return ["signed out", "You are signed out: what you see is no longer live. Load the page again to sign in."];
      if (answer.ok) return ["not live", "Too many live pages are open: what you see is not live. It is tried again."];
    } catch {
      /* nobody is there */
    }
    return ["no answer", "The portal does not answer: what you see is no longer live. It is tried again."];
  };
  let failures = 0;
  const listen = () => {
    const source = new EventSource(stream);
    source.addEventListener("state", (event) => {
      failures = 0;
      const data = JSON.parse(event.data);
      window.waypost.last = data;
      if (data.core.running) say("running", "core: running", "");
      else say("down", "core: " + data.core.words, data.core.notice + age(data.core));
      show(data);
      document.dispatchEvent(new CustomEvent("waypost:live", { detail: data }));
    });
    source.onerror = async () => {
      failures += 1;
      const closed = source.readyState === EventSource.CLOSED;
      if (closed) setTimeout(listen, Math.min(30000, 1000 * 2 ** Math.min(failures, 5)));
      if (closed || failures > 1) {
        const [words, notice] = await whyRefused();
        if (failures) say("unknown", "portal: " + words, notice);
      }
    };
    addEventListener("pagehide", () => source.close(), { once: true });
  };
  listen();
})();
