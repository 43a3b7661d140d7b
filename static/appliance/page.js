// The script of every page: time zone, light or dark, keys, dialogs, automatic requests, and the errors of htmx.
"use strict";
(() => {
  const oneYear = "; path=/; max-age=31536000; samesite=lax";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.includes("waypost_zone=" + zone)) document.cookie = "waypost_zone=" + zone + oneYear;

  // Times of charts, in the zone of the page's other times: a time on another day has its date, as in tables.
  const pad = (number) => String(number).padStart(2, "0");
  const dayOf = (at) => at.getFullYear() + "-" + pad(at.getMonth() + 1) + "-" + pad(at.getDate());
  const isToday = (at) => dayOf(at) === dayOf(new Date());
  const clock = (seconds, parts) => {
    const at = new Date(seconds * 1000);
    return (isToday(at) ? "" : dayOf(at) + " ") + at.toLocaleTimeString("en-GB", parts);
  };
  // The labels of an axis: the date is below the time.
  const ticks = (times, parts) =>
    times.map((seconds) => {
      const at = new Date(seconds * 1000);
      return at.toLocaleTimeString("en-GB", parts) + (isToday(at) ? "" : "\n" + dayOf(at));
    });
  window.waypost = { formats: { clock, ticks } };

  const root = document.documentElement;
  const stored = localStorage.getItem("theme");
  if (stored) root.dataset.theme = stored;
  const dark = () =>
    root.dataset.theme === "dark" || (root.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("waypost:theme"));
  });

  // Rows: a table with data-rows is walked with j and k; a row's link is the one with data-open.
  const rows = () => [...document.querySelectorAll("table[data-rows] tbody tr")];
  const mark = (row) => {
    rows().forEach((each) => each.classList.toggle("current", each === row));
    row.scrollIntoView({ block: "nearest" });
    (row.querySelector("[data-open]") || row.querySelector("a"))?.focus({ preventScroll: true });
  };
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("current"));
    mark(all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]);
  };
  const places = { o: "/", q: "/queue/", d: "/destinations/", t: "/tuning/" };
  let gone = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input:not([type=checkbox]), textarea, select") || document.querySelector("dialog[open]")) return;
    if (Date.now() - gone < 1000 && places[event.key]) {
      location.href = places[event.key];
      return;
    }
    switch (event.key) {
      case "/":
        document.getElementById("search")?.focus();
        break;
      case "j":
        step(1);
        break;
      case "k":
        step(-1);
        break;
      case "x":
        document.querySelector("tr.current input[type=checkbox]")?.click();
        break;
      case "g":
        gone = Date.now();
        break;
      case "?":
        document.getElementById("keys")?.showModal();
        break;
      default:
        return;
    }
    event.preventDefault();
  });

  // The palette: what is typed is asked of the server, which lists links; Enter follows the one that is chosen.
  const palette = document.getElementById("palette");
  const typed = document.getElementById("palette-typed");
  const options = () => [...document.querySelectorAll("#palette-found [role=option]")];
  const choose = (option) => {
    options().forEach((each) => each.setAttribute("aria-selected", String(each === option)));
    if (option) typed.setAttribute("aria-activedescendant", option.id);
    else typed.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };
  const go = (option) => {
    if (option) location.href = option.dataset.url;
  };
  document.addEventListener("keydown", (event) => {
    if (!palette || event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
    event.preventDefault();
    if (palette.open || document.querySelector("dialog[open]")) return;
    typed.value = "";
    palette.showModal();
    htmx.trigger(typed, "palette");
  });
  typed?.addEventListener("keydown", (event) => {
    const all = options();
    const at = all.findIndex((each) => each.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown") choose(all[Math.min(at + 1, all.length - 1)]);
    else if (event.key === "ArrowUp") choose(all[Math.max(at - 1, 0)]);
    else if (event.key === "Enter") {
      // An answer that is still on its way counts: what is typed decides, not what was listed before it.
      if (typed.classList.contains("htmx-request") || typed.value !== palette.dataset.listed) palette.dataset.go = "1";
      else go(all[at]);
    } else return;
    event.preventDefault();
  });
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target.id !== "palette-found") return;
    palette.dataset.listed = new URL(event.detail.xhr.responseURL).searchParams.get("q") || "";
    choose(options()[0]);
    if (palette.dataset.go && palette.dataset.listed === typed.value) go(options()[0]);
    if (palette.dataset.listed === typed.value) delete palette.dataset.go;
  });
  palette?.addEventListener("click", (event) => {
    if (event.target === palette) palette.close();
    else go(event.target.closest("[role=option]"));
  });

  // Dialogs: content that is swapped into #dialog-body opens the dialog; data-close closes it. So does the event waypost:close.
  const dialog = document.getElementById("dialog");
  // What is typed first replaces the value that a form proposes.
  const selectProposed = (place) => {
    const proposed = place.querySelector("input[autofocus]");
    proposed?.focus();
    proposed?.select();
  };
  selectProposed(document);
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "dialog-body" && !dialog.open && event.detail.target.textContent.trim()) {
      dialog.showModal();
      selectProposed(dialog);
    }
  });
  document.body.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  });
  document.body.addEventListener("waypost:close", () => dialog.close());

  // Requests that no user made, such as polling, have a header that says so: they do not prolong the session.
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (!event.detail.triggeringEvent) event.detail.headers["Waypost-Again"] = "1";
  });

  // Show error answers, too: in the dialog if it made the request, else at the top of the page.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const status = event.detail.xhr.status;
    if (status < 400) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
    const type = event.detail.xhr.getResponseHeader("Content-Type") || "";
    const whole = event.detail.xhr.responseText.includes("<!doctype");
    if (!type.startsWith("text/html") || whole) {
      event.detail.serverResponse = '<p class="notice error" role="alert">The portal answered with status ' + status + ".</p>";
    }
    if (status !== 422 || !dialog.open) {
      event.detail.target = document.querySelector("dialog[open] .dialog-notice") || document.getElementById("notice");
      event.detail.swapOverride = "innerHTML";
    }
  });
  const unreachable = (event) => {
    const read = event.detail.requestConfig?.verb === "get";
    const place = document.querySelector("dialog[open] .dialog-notice") || document.getElementById("notice");
    place.innerHTML =
      '<p class="notice error" role="alert">The portal does not answer.' +
      (read ? "" : " The change may have been made; check before you repeat it.") +
      "</p>";
  };
  document.body.addEventListener("htmx:sendError", unreachable);
  document.body.addEventListener("htmx:timeout", unreachable);

  // Times grow older while a page is open.
  const span = (s) =>
    s < 60
      ? Math.floor(s) + " s"
      : s < 3600
        ? Math.floor(s / 60) + " min"
        : s < 86400
          ? Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min"
          : Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
  setInterval(() => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      if (!/ ago$|^in /.test(time.textContent)) continue;
      const ahead = (Date.parse(time.dateTime) - Date.now()) / 1000;
      const words = ahead <= 0.5 && "due" in time.dataset ? "now" : ahead > 0.5 ? "in " + span(ahead) : span(-ahead) + " ago";
      if (time.textContent !== words && Math.abs(ahead) > 5) time.textContent = words;
    }
  }, 5000);
})();
