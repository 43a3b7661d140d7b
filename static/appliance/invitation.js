// The page of an invitation: takes the code from behind the # of the link, which no server has seen, and sends the form.
"use strict";
(() => {
  const form = document.getElementById("invitation");
  const code = location.hash.slice(1);
  if (!form || !code) return;
  history.replaceState(null, "", location.pathname); // the history of the browser does not keep it
  form.elements.code.value = code;
  form.requestSubmit();
})();
