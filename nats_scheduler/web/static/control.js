// Shows what a schedule would be while it is typed: asks as the button Preview does, and shows the answer in its place.
"use strict";
(() => {
  const PAUSE = 400;
  const form = document.querySelector("form[data-preview]");
  if (!form) return;
  let timer = 0, asked = 0;

  async function preview() {
    const number = ++asked;
    const body = new URLSearchParams(new FormData(form));
    body.set("step", "preview");
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { "X-Fragment": "1" }, signal: AbortSignal.timeout(15000) });
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
      if (number !== asked) return; // something else was typed meanwhile
      document.getElementById("preview").replaceChildren(...(found ? found.childNodes : [`No preview: the answer was ${answer.status}.`]));
    } catch (error) {
      if (number === asked) document.getElementById("preview").replaceChildren(`No preview: ${error.message}.`);
    }
  }

  form.addEventListener("input", (event) => {
    if (["author", "reason"].includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE);
  });
})();
