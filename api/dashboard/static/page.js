// Fetches the live part of the page every two seconds and swaps what changed. The page works without it.
"use strict";
(() => {
  const main = document.querySelector("[data-fragment]");
  const stale = document.getElementById("stale");
  const folded = new Set(JSON.parse(sessionStorage.getItem("folded") || "[]"));
  let pause = 2000;

  // Links that change one part of the query keep the rest.
  function setQuery(link) {
    const query = new URLSearchParams(location.search);
    const [name, value] = link.dataset.setQuery.split("=");
    query.delete("cursor");
    if (value) query.set(name, value); else query.delete(name);
    link.href = "/?" + query;
  }

  function showTree() {
    const filter = document.getElementById("tree-filter");
    const wanted = filter ? filter.value.trim().toLowerCase() : "";
    const shown = new Set();
    const rows = [...document.querySelectorAll("tr[data-path]")];
    if (wanted) {
      for (const row of rows) {
        if (!row.dataset.path.toLowerCase().includes(wanted)) continue;
        shown.add(row.dataset.path);
        for (const parent of row.dataset.parents.split(" ")) shown.add(decodeURI(parent));
      }
    }
    for (const row of rows) {
      const parents = row.dataset.parents.split(" ").map(decodeURI);
      row.hidden = wanted ? !shown.has(row.dataset.path) : parents.some((parent) => folded.has(parent));
    }
    for (const button of document.querySelectorAll("[data-fold]")) {
      button.setAttribute("aria-expanded", String(!folded.has(button.dataset.fold)));
    }
  }

  function prepare() {
    document.querySelectorAll("[data-set-query]").forEach(setQuery);
    showTree();
  }

  function swap(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const old of main.querySelectorAll("[data-live]")) {
      const next = fresh.querySelector(`[data-live="${old.dataset.live}"]`);
      if (!next || next.innerHTML === old.dataset.html) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      old.dataset.html = next.innerHTML;
      old.replaceChildren(...next.childNodes);
      if (focused) [...old.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    }
    prepare();
  }

  async function poll() {
    const selecting = String(getSelection()).length > 0;
    if (!document.hidden && !selecting) {
      try {
        const begun = performance.now();
        const url = main.dataset.fragment + ("keepQuery" in main.dataset ? location.search : "");
        const answer = await fetch(url, { headers: { Accept: "text/html" } });
        if (answer.redirected) { // The log-in has ended.
          location.assign("/login?next=" + encodeURIComponent(location.pathname + location.search));
          return;
        }
        if (!answer.ok) throw new Error(answer.statusText);
        swap(await answer.text());
        stale.hidden = true;
        // A server that needs long to answer is asked less often.
        pause = Math.max(2000, 5 * (performance.now() - begun));
      } catch {
        stale.hidden = false;
        pause = Math.min(pause * 2, 30000);
      }
    }
    setTimeout(poll, pause);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-fold]");
    if (!button) return;
    if (!folded.delete(button.dataset.fold)) folded.add(button.dataset.fold);
    sessionStorage.setItem("folded", JSON.stringify([...folded]));
    showTree();
  });
  document.addEventListener("input", (event) => {
    if (event.target.id === "tree-filter") showTree();
  });
  prepare();
  if (main) setTimeout(poll, pause);
})();
