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

  async function fresh() {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(limit) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.getElementById("main");
    if (main === null) {
      throw new Error("the answer is another page");
    }
    const old = document.getElementById("main");
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && focused.getAttribute("href");
    old.replaceWith(document.adoptNode(main));
    if (place !== null) {
      const again = Array.from(main.querySelectorAll("a")).find((a) => a.getAttribute("href") === place);
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
