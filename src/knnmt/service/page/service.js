// Requests to the service that the page came from.
import { told } from "./strings.js";

const KEPT = "knnmt.key";
// The page may lie below a prefix of a proxy, and it may be that of one domain: /d/NAME/.
const place = location.pathname.match(/^(.*\/)d\/([^/]+)\/$/);
const root = place ? place[1] : location.pathname.replace(/[^/]*$/, "");
export const ownDomain = place ? decodeURIComponent(place[2]) : null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const keepKey = (key) => sessionStorage.setItem(KEPT, key);

async function send(method, path, { body, signal, kind } = {}) {
  const headers = {};
  const key = sessionStorage.getItem(KEPT);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = kind ?? "application/json";
  const content = body === undefined || kind ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(root + path, { method, headers, body: content, signal, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, told("unreachable"));
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.message ?? told("not_understood", { status: response.status }));
}

export async function ask(method, path, options) {
  const response = await send(method, path, options);
  return response.json();
}

export const remove = (path) => send("DELETE", path);

export async function download(path) {
  return (await send("GET", path)).blob();
}

// The lines of an answer as they come.
export async function* lines(path, options) {
  const response = await send("POST", path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const found = (rest + value).split("\n");
      rest = found.pop();
      for (const line of found) if (line) yield JSON.parse(line);
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Refused) throw error;
    throw new Refused(0, told("cut_short"));
  }
}
