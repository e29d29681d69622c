// Values that outlive the page, as JSON. Storage that is full, disabled or corrupt counts as empty.

/** The value of a name, or the fallback. */
export function load(name, fallback, storage = "localStorage") {
  try {
    return JSON.parse(globalThis[storage].getItem(`llmrt.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Returns whether the value was stored. */
export function save(name, value, storage = "localStorage") {
  try {
    globalThis[storage].setItem(`llmrt.${name}`, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
