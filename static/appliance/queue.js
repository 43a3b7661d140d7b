// The queue: selecting rows, stopping a filter that reads on, and reading the page again when something was changed.
"use strict";
(() => {
  const rows = document.getElementById("rows");
  const boxes = () => (rows ? [...rows.querySelectorAll("input[name=m]")] : []);
  const head = document.getElementById("pick-page");
  const all = document.getElementById("all-matching");
  const chosen = document.getElementById("chosen");
  const count = () => {
    if (!chosen) return;
    const here = boxes();
    const picked = here.filter((box) => box.checked).length;
    const words = all.checked ? "all" : String(picked);
    if (chosen.textContent !== words) chosen.textContent = words;
    head.checked = picked > 0 && picked === here.length;
    head.indeterminate = picked > 0 && picked < here.length;
    for (const button of document.querySelectorAll("[data-act]")) button.disabled = !(picked || all.checked);
  };
  let last = null;
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (!box.matches?.("#rows input[name=m]")) return;
    if (event.shiftKey && last && last.isConnected) {
      const here = boxes();
      const [from, to] = [here.indexOf(last), here.indexOf(box)].sort((a, b) => a - b);
      for (const each of here.slice(from, to + 1)) each.checked = box.checked;
    }
    last = box;
  });
  document.addEventListener("change", (event) => {
    if (event.target === head) for (const box of boxes()) box.checked = head.checked;
    count();
  });
  document.querySelector("[data-acts]")?.addEventListener("submit", (event) => event.preventDefault());
  count();

  // Reading on: a stop is a stop, also for the answer that is on its way. Each place that reads on has an id of its own.
  const stopped = new Set();
  const isReading = (element) => element.classList?.contains("reading");
  document.addEventListener("click", (event) => {
    const place = event.target.closest?.(".reading");
    if (event.target.closest?.("[data-stop]")) {
      stopped.add(place.id);
      place.classList.add("is-halted");
    }
    if (event.target.closest?.("[data-go-on]")) {
      stopped.delete(place.id);
      place.classList.remove("is-halted");
      htmx.trigger(place, "go-on");
    }
  });
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (isReading(event.target) && stopped.has(event.target.id)) {
      event.preventDefault();
      event.target.classList.add("is-halted");
    }
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    const status = event.detail.xhr.status;
    if (isReading(event.target) && !(status >= 200 && status < 300)) event.target.classList.add("is-halted");
  });
  document.body.addEventListener("htmx:afterSettle", count);

  // What is shown whole lies over other rows: Escape takes it away until the pointer or the focus is on another cell.
  const tables = document.querySelectorAll("table.lines");
  const calm = (is) => tables.forEach((table) => table.classList.toggle("calm", is));
  document.addEventListener("keydown", (event) => event.key === "Escape" && calm(true));
  for (const table of tables) {
    table.addEventListener("focusin", () => calm(false));
    table.addEventListener(
      "mouseover",
      (event) => event.target.closest("td") !== event.relatedTarget?.closest?.("td") && calm(false),
    );
  }

  // What was changed is seen when the dialog closes.
  const dialog = document.getElementById("dialog");
  dialog?.addEventListener("close", () => {
    const change = dialog.querySelector("#change");
    const seen = change && (change.hasAttribute("data-changed") || change.dataset.phase === "running");
    document.getElementById("dialog-body").replaceChildren();
    if (seen) location.reload();
  });
})();
