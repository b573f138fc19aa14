// Verdicts and their reasons (SPEC "Verdicts", 8.6): the stable numbers, and the error that carries a rejection.

export const REJECT_REASONS = Object.freeze({
  SIZE: 1,
  AUTHOR_KEY: 2,
  STEP_RANGE: 3,
  STEP_ALIGNMENT: 4,
  SEED: 5,
  SCALAR_RANGE: 6,
  SCALAR_ENERGY: 7,
  SIGNATURE: 8,
  FRAME: 9,
  MESSAGE_KIND: 10,
  MESSAGE_FIELD: 11,
  MESSAGE_NOT_CANONICAL: 12,
  MANIFEST_FORMAT: 13,
  MANIFEST_FIELD: 14,
  MANIFEST_SIGNATURE: 15,
  UNREQUESTED: 16,
  RUN_ID: 17,
  BASIS: 18,
  AUDIT_FORMAT: 19,
  LOG_FORMAT: 20,
  AUTHOR_WORK: 21,
  STATEMENT_FORMAT: 22,
  STATEMENT_SIGNATURE: 23,
  SNAPSHOT_FORMAT: 24,
});

export const IGNORE_REASONS = Object.freeze({
  ALREADY_HELD: 1,
  SLOT_VOID: 2,
  TOO_EARLY: 3,
  AUTHORS_FULL: 4,
  NOT_ADMITTED: 5,
  EXCLUDED: 6,
  STATEMENTS_FULL: 7,
  ATTESTATIONS_FULL: 8,
});

/** Thrown by every rule whose bytes can never be valid. */
export class Rejected extends Error {
  constructor(reason, detail = "") {
    if (!(reason in REJECT_REASONS)) throw new TypeError(`no such reason: ${reason}`);
    super(detail ? `${reason}: ${detail}` : reason);
    this.reason = reason;
  }
}

export function rejectUnless(condition, reason, detail) {
  if (!condition) throw new Rejected(reason, detail);
}

/** The reason with which `action` rejects, or null. Other errors are bugs and pass through. */
export function reasonOf(action) {
  try {
    action();
    return null;
  } catch (error) {
    if (error instanceof Rejected) return error.reason;
    throw error;
  }
}
