// Asks for the page again every few seconds, and shows its new content.
// It asks nobody while the page can't be seen, or a part of it is selected.
"use strict";
(function () {
  const seconds = () => Number(document.getElementById("main").dataset.refresh || 0);
  const stale = document.getElementById("stale");
  const limit = 10000;

  function busy() {
    const selection = document.getSelection();
    return document.hidden || (selection !== null && !selection.isCollapsed);
  }

  // What tells a link, or a part that can be scrolled, from the others of a page.
  function nameOf(element) {
    if (element.hasAttribute("href")) {
      return "link " + element.getAttribute("href");
    }
    const part = element.closest("section");
    const heading = part === null ? "" : part.getAttribute("aria-labelledby");
    return "part " + heading + " " + (element.getAttribute("aria-label") || element.previousElementSibling?.textContent || "");
  }

  // How far the parts of a page are scrolled.
  function scrolled(main) {
    return new Map(Array.from(main.querySelectorAll("[tabindex]"), (e) => [nameOf(e), [e.scrollLeft, e.scrollTop]]));
  }

  async function fresh() {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(limit) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (busy()) { // a part of it was selected meanwhile
      return;
    }
    const main = page.getElementById("main");
    if (main === null) {
      throw new Error("the answer is another page");
    }
    const old = document.getElementById("main");
    const places = scrolled(old);
    const place = old.contains(document.activeElement) ? nameOf(document.activeElement) : "";
    old.replaceWith(document.adoptNode(main));
    for (const e of main.querySelectorAll("[tabindex]")) {
      const [left, top] = places.get(nameOf(e)) || [0, 0];
      e.scrollTo(left, top);
    }
    if (place !== "") {
      const again = Array.from(main.querySelectorAll("a, [tabindex]")).find((e) => nameOf(e) === place);
      if (again !== undefined) {
        again.focus({ preventScroll: true });
      }
    }
  }

  async function refresh() {
    if (!busy()) {
      try {
        await fresh();
        stale.hidden = true;
      } catch (error) {
        stale.textContent = "This page could not be refreshed: " + error.message;
        stale.hidden = false;
      }
    }
    next();
  }

  function next() {
    if (seconds() > 0) {
      setTimeout(refresh, seconds() * 1000);
    }
  }
  next();
})();
