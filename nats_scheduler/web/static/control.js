// Shows what a schedule would be while it is typed: asks as the button Preview does, and shows the answer in its place.
// It asks one question at a time, so that one who types takes one of the sidecar's places, and sends each form once.
"use strict";
(() => {
  const PAUSE = 400, TWICE = 2000;

  // The second click of two would show what became of a form that is done already.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.hasAttribute("data-sent")) return event.preventDefault();
    form.setAttribute("data-sent", "");
    setTimeout(() => form.removeAttribute("data-sent"), TWICE);
  });

  const form = document.querySelector("form[data-preview]");
  if (!form) return;
  let timer = 0, asking = false, typed = false;

  async function answered() {
    const body = new URLSearchParams(new FormData(form));
    body.set("step", "preview");
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { "X-Fragment": "1" }, signal: AbortSignal.timeout(15000) });
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
      return found ? [...found.childNodes] : [`No preview: the answer was ${answer.status}.`];
    } catch (error) {
      return [`No preview: ${error.message}.`];
    }
  }

  async function preview() {
    typed = true;
    if (asking) return;
    asking = true;
    while (typed) {
      typed = false;
      const shown = await answered();
      if (!typed) document.getElementById("preview").replaceChildren(...shown); // else something was typed meanwhile
    }
    asking = false;
  }

  form.addEventListener("input", (event) => {
    if (["author", "reason"].includes(event.target.name) || event.target.name.startsWith("build_")) return;
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE);
  });
})();
