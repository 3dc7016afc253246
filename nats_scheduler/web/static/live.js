// Asks for the parts of this page that change, and puts what is different into the page, element by element, so that
// focus, scroll position, selection and open details stay. It asks for nothing while the tab is hidden or paused.
"use strict";
(() => {
  const INTERVAL = 2000, LONGEST_INTERVAL = 30000;
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  const said = document.getElementById("said");
  let failures = 0, timer = 0, asking = false, paused = false, shown = "";

  // Elements are the same if they have the same name and the same key.
  const keyOf = (node) => node.nodeType === 1 ? node.id || node.getAttribute("data-key") || "" : "";
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  function morphAttributes(old, wanted) {
    for (const { name, value } of [...wanted.attributes])
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!wanted.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }

  function morph(old, wanted) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    if (old.isEqualNode(wanted)) return;
    morphAttributes(old, wanted);
    const keyed = new Map();
    for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const child of [...wanted.childNodes]) {
      const key = keyOf(child);
      const known = key ? keyed.get(key) : undefined;
      if (known && known !== at && same(known, child)) old.insertBefore(known, at);
      const here = known && same(known, child) ? known : at;
      if (key) keyed.delete(key);
      if (here && same(here, child)) {
        morph(here, child);
        at = here.nextSibling;
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function verdictNow() {
    const pill = document.querySelector("[data-verdict]");
    return pill ? pill.getAttribute("data-verdict") : "";
  }

  async function update() {
    asking = true;
    const before = verdictNow();
    try {
      const headers = { "X-Fragment": "1", "X-Live": shown };
      const answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(15000) });
      if (answer.status === 401) return location.reload();
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = [...parsed.querySelectorAll("[data-live]")];
      if (!parts.length) throw new Error("no fragment");
      for (const part of parts) {
        const old = document.getElementById(part.id);
        if (old) morph(old, part);
      }
      document.title = document.getElementById("live").getAttribute("data-title") || document.title;
      shown = answer.headers.get("X-Live") || "";
      failures = 0;
      lost.hidden = true;
      if (verdictNow() !== before) said.textContent = verdictNow();
    } catch {
      failures += 1;
      if (failures > 1) lost.hidden = false;
    } finally {
      asking = false;
      plan();
    }
  }

  function plan() {
    clearTimeout(timer);
    if (paused || document.hidden || asking) return;
    timer = setTimeout(update, Math.min(INTERVAL * 2 ** Math.min(failures, 5), LONGEST_INTERVAL));
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden && !paused && !asking) update();
  });
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Updates paused" : "Pause updates";
    if (paused) clearTimeout(timer);
    else if (!asking) update();
  });
  plan();
})();
