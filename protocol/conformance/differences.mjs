// Where two JSON values differ. One exception to equality: an expected REJECT whose reason is null leaves it open.

/** Null, or {path, expected, found} of the first difference. */
export function firstDifference(expected, found, path = "") {
  if (!isContainer(expected) || !isContainer(found) || Array.isArray(expected) !== Array.isArray(found)) {
    return Object.is(expected, found) ? null : { path, expected, found };
  }
  const keys = new Set([...Object.keys(expected), ...Object.keys(found)]);
  for (const key of keys) {
    if (key === "reason" && leavesReasonOpen(expected, found)) continue;
    const difference = firstDifference(expected[key], found[key], `${path}.${key}`);
    if (difference !== null) return difference;
  }
  return null;
}

function isContainer(value) {
  return typeof value === "object" && value !== null;
}

function leavesReasonOpen(expected, found) {
  return expected.verdict === "REJECT" && expected.reason === null && found.verdict === "REJECT";
}
