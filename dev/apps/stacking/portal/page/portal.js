// Shows how far a stack is, and loads its page again at its end.

const place = document.getElementById("progress");

async function look() {
  const answer = await fetch(place.dataset.url, { headers: { accept: "application/json" } });
  // The session has ended, or the stack was deleted: the page itself says so.
  if (answer.redirected || answer.status === 401 || answer.status === 404) {
    location.reload();
    return true;
  }
  if (!answer.ok) throw new Error(answer.status);
  const { over, percent, words } = await answer.json();
  if (over) {
    location.reload();
    return true;
  }
  place.querySelector("progress").value = percent;
  place.querySelector("b").textContent = `${percent} %`;
  place.querySelector("p").textContent = words;
  return false;
}

async function follow() {
  for (;;) {
    try {
      if (await look()) return;
    } catch {
      place.querySelector("p").textContent = "The portal does not answer; asking again.";
    }
    await new Promise((go) => setTimeout(go, 1000));
  }
}

if (place) follow();
