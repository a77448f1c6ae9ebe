// Amounts as words.

const COUNT = new Intl.NumberFormat("en");

export function count(number) {
  return COUNT.format(number);
}

/** A number with its noun: `counted(1, "task")` is "1 task". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Microseconds as "350 ms", "4.2 s", "3 min 20 s" or "2 h 5 min". */
export function duration(us) {
  const seconds = us / 1e6;
  if (seconds < 1) return `${Math.round(us / 1e3)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${count(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let place = 0;
  while (number >= 1000 && place < units.length - 1) {
    number /= 1000;
    place += 1;
  }
  return `${place === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[place]}`;
}

export function rate(perSecond) {
  return perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(perSecond >= 10 ? 0 : 1);
}

/** A moment as the local time, with the day if it is not today. */
export function moment(unixMs) {
  const at = new Date(unixMs);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

/** A name, which is an object with its bytes if it is not UTF-8. */
export function name(text) {
  return typeof text === "string" ? text : `(bytes) ${text.bytes_b64}`;
}
