"use strict";
// Show the progress of the harvest, and the answer once it is there.
const look = async () => {
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const waiting = page.querySelector(".waiting");
    if (!waiting) return location.reload();
    document.querySelector(".waiting").replaceWith(waiting);
  } catch (error) {
    console.debug(error); // the network may come back
  }
  setTimeout(look, {{ seconds * 1000 }});
};
setTimeout(look, {{ seconds * 1000 }});
