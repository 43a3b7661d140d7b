// Restart positions: the changing part is replaced as a whole; open details, the selection and the focus stay.
"use strict";
(() => {
  const place = document.getElementById("positions");
  let open = [];
  let focused = "";
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt !== place) return;
    const selection = document.getSelection();
    const reading = selection && !selection.isCollapsed && place.contains(selection.anchorNode);
    if (document.hidden || reading) event.preventDefault();
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target !== place) return;
    open = [...place.querySelectorAll("details[open]")].map((each) => each.id);
    focused = place.contains(document.activeElement) ? document.activeElement.closest("details")?.id || "" : "";
    place.style.minHeight = place.offsetHeight + "px"; // the page keeps its length while the piece is exchanged
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target !== place) return;
    for (const id of open) {
      const each = document.getElementById(id);
      if (each) each.open = true;
    }
    if (focused) document.getElementById(focused)?.querySelector("summary")?.focus({ preventScroll: true });
    place.style.minHeight = "";
  });
})();
