(() => {
  "use strict";
  const state = document.getElementById("state").firstChild;
  let asking = false;
  const renew = async () => {
    if (asking || document.hidden) return;
    const selection = getSelection();
    if (selection && !selection.isCollapsed) {
      state.data = "Not renewed while text is selected.";
      return;
    }
    asking = true;
    try {
      const answer = await fetch("/_mely/values", { cache: "no-store" });
      if (!answer.ok) throw answer.status;
      const values = await answer.json();
      for (const id in values) {
        const element = document.getElementById(id);
        const text = element && element.firstChild;
        if (text && text.data !== values[id]) text.data = values[id];
      }
      state.data = "Renewed every two seconds.";
    } catch {
      state.data = "The server does not answer: these figures are from before.";
    }
    asking = false;
  };
  setInterval(renew, 2000);
})();
