// Passkeys: makes one, or signs in with one. A form with data-passkey has a button and a field "credential", which this fills in.
"use strict";
(() => {
  const bytes = (text) => {
    const plain = atob(
      text
        .replace(/-/g, "+")
        .replace(/_/g, "/")
        .padEnd(Math.ceil(text.length / 4) * 4, "="),
    );
    return Uint8Array.from(plain, (character) => character.charCodeAt(0)).buffer;
  };
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, "-")
      .replace(/\//g, "_")
      .replace(/=/g, "");
  const described = (each) => ({ ...each, id: bytes(each.id) });

  const create = async ({ publicKey }, isAlone) => {
    const wanted = {
      ...publicKey,
      challenge: bytes(publicKey.challenge),
      user: described(publicKey.user),
      excludeCredentials: (publicKey.excludeCredentials || []).map(described),
      authenticatorSelection: {
        ...publicKey.authenticatorSelection,
        residentKey: isAlone ? "required" : "discouraged",
        requireResidentKey: isAlone,
        userVerification: isAlone ? "required" : "preferred",
      },
    };
    const made = await navigator.credentials.create({ publicKey: wanted });
    return answer(made, {
      attestationObject: text(made.response.attestationObject),
      transports: made.response.getTransports?.() || [],
    });
  };
  const get = async ({ publicKey }) => {
    const wanted = {
      ...publicKey,
      challenge: bytes(publicKey.challenge),
      allowCredentials: (publicKey.allowCredentials || []).map(described),
    };
    const found = await navigator.credentials.get({ publicKey: wanted });
    const { authenticatorData, signature, userHandle } = found.response;
    return answer(found, {
      authenticatorData: text(authenticatorData),
      signature: text(signature),
      userHandle: userHandle && text(userHandle),
    });
  };
  const answer = (credential, response) => ({
    id: credential.id,
    rawId: text(credential.rawId),
    type: credential.type,
    authenticatorAttachment: credential.authenticatorAttachment,
    clientExtensionResults: credential.getClientExtensionResults(),
    response: { clientDataJSON: text(credential.response.clientDataJSON), ...response },
  });

  const options = async (form) => {
    const given = document.getElementById("passkey-options");
    if (given) return JSON.parse(given.textContent);
    const asked = await fetch(form.action, { headers: { Accept: "application/json" } });
    if (!asked.ok) throw new Error("status " + asked.status);
    return (await asked.json()).request_options;
  };
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const problem = form.querySelector("[role=alert]");
    form.addEventListener("submit", async (event) => {
      if (form.elements.credential.value) return;
      event.preventDefault();
      problem.hidden = true;
      try {
        const isNew = form.dataset.passkey === "create";
        const asked = await options(form);
        const made = isNew ? await create(asked, form.elements.passwordless.checked) : await get(asked);
        form.elements.credential.value = JSON.stringify(made);
        form.submit();
      } catch (error) {
        const words = {
          NotAllowedError: "it was cancelled, or took too long",
          InvalidStateError: "this device has one already",
        };
        problem.textContent = "No passkey was used: " + (words[error.name] || error.message) + ".";
        problem.hidden = false;
      }
    });
  }
})();
