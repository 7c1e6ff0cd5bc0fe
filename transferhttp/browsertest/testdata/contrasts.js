// The texts of a page that are hard to read, and the parts of charts that are hard to see.
(() => {
	const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
	const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
	const parse = (color) => (color.match(/[\d.]+/g) || []).map(Number);
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05) };
	const behind = (e) => {
		for (; e !== null; e = e.parentElement) {
			const color = parse(getComputedStyle(e).backgroundColor);
			if (color.length === 3 || color[3] === 1) { return color }
			if (color[3] !== 0) { throw new Error("a translucent background") }
		}
		return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
	};
	const bad = [];
	const judge = (what, e, color, least) => {
		const found = ratio(parse(color), behind(e));
		if (!(found >= least)) { bad.push(what + " has " + found.toFixed(2)) }
	};
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		const shown = e.closest("script, noscript, [hidden], option") === null && e.getClientRects().length > 0;
		if (texts.currentNode.textContent.trim() === "" || !shown) { continue }
		seen++;
		judge(texts.currentNode.textContent.trim(), e, getComputedStyle(e).color, 4.5);
	}
	for (const path of document.querySelectorAll("svg path:not(.grid)")) {
		const style = getComputedStyle(path);
		seen++;
		judge("a chart's " + path.getAttribute("class"), path, style.fill === "none" ? style.stroke : style.fill, 3);
	}
	return { seen, bad, dark: light(behind(document.body)) < 0.1 };
})()
