// What a page lacks for those who don't see it, or use no mouse.
(() => {
	const faults = [];
	const all = (selector) => Array.from(document.querySelectorAll(selector));
	const must = (is, what) => { if (!is) { faults.push(what) } };
	must(document.documentElement.lang === "en", "language");
	must(document.title !== "", "title");
	must(all("main").length === 1 && all("header").length === 1, "landmarks");
	must(all("h1").length === 1, "one first heading");
	let before = 0;
	for (const h of all("h1, h2, h3, h4")) {
		const level = Number(h.tagName[1]);
		must(level <= before + 1, "the level of " + h.textContent);
		must(h.textContent.trim() !== "", "an empty heading");
		before = level;
	}
	const ids = all("[id]").map((e) => e.id);
	must(new Set(ids).size === ids.length, "an ID twice");
	for (const e of all("[aria-labelledby]")) { must(document.getElementById(e.getAttribute("aria-labelledby")) !== null, "a label") }
	for (const e of all("th")) { must(e.scope === "col" || e.scope === "row", "a scope: " + e.textContent) }
	for (const e of all("table")) {
		must(e.tHead !== null, "a table without headings");
		must(e.closest("[role=region][aria-label][tabindex='0']") !== null, "a table that can't be scrolled by keys");
	}
	for (const e of all("input, select")) { must(e.labels.length > 0, "a label of " + e.name) }
	for (const e of all("svg")) {
		const told = e.getAttribute("role") === "img" && e.getAttribute("aria-label");
		must(e.getAttribute("aria-hidden") === "true" || told, "a picture without words");
	}
	for (const e of all("a, button")) { must(e.textContent.trim() !== "", "a link without a text") }
	for (const e of all("[tabindex]")) { must(e.tabIndex <= 0, "an order of its own") }
	for (const e of all("nav, form, [role=region]")) { must(e.getAttribute("aria-label"), "a name of " + e.tagName) }
	return faults;
})()
