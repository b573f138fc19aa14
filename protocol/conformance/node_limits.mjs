// What the node machine needs of the table in SPEC 10. A trace may name other values, to show a bound with few records.

export const LIMITS = Object.freeze({
  STEPS_AHEAD_MAX: 64,
  PULL_BYTES_MAX: 131072,
  PUSH_QUEUE_RECORDS_MAX: 8192,
  RECORDS_PER_FRAME_MAX: 512,
  STATEMENTS_MAX: 131072,
  STATEMENTS_PER_MESSAGE_MAX: 256,
  ATTESTATIONS_MAX: 1024,
  ATTESTATIONS_PER_TELLER_MAX: 256,
  ATTESTATIONS_PER_MESSAGE_MAX: 256,
  SNAPSHOT_BYTES_MAX: 67108864,
  SNAPSHOT_BEHIND_MIN: 60000,
  SNAPSHOT_MISSING_MS: 60000,
  FLUSH_INTERVAL_MS: 50,
  FLUSH_INTERVAL_MS_MAX: 400,
  LATE_MS_MAX: 25,
  HEAD_INTERVAL_MS: 2000,
  REQUEST_TIMEOUT_MS: 10000,
  ANSWER_MS_MAX: 60000,
  SYNC_REST_MS: 1000,
  SYNC_REST_MS_MAX: 60000,
  FIRST_SYNC_TIMEOUT_MS: 30000,
  RECOUNT_REST_MS: 60000,
  STEP_WAIT_MS_MIN: 200,
  STEP_WAIT_MS_MAX: 30000,
  STEP_WAIT_MS_START: 5000,
  STEP_WAIT_FACTOR: 2,
  STEP_GRACE_PART: 20,
  ROUNDS_AHEAD_MAX: 8,
  AT_WORK_INTERVALS: 8,
  MET_MS_MIN: 600000,
  MET_MS_MAX: 3600000,
  ACTIVE_WINDOW_STEPS: 2,
  WORK_DISTANCE_MAX: 16,
  WORK_TOLD_MS: 100,
  END_INTERVALS: 4,
  END_PATIENCE_MS_MAX: 900000,
  END_WAIT_MS_MAX: 1800000,
});

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** The middle of a list of numbers; of an even number of them the lower of the two in the middle. */
export function lowerMedian(values) {
  return sorted(values)[Math.floor((values.length - 1) / 2)];
}

/** The same, but the mean of the two. */
export function median(values) {
  const ascending = sorted(values);
  return (ascending[Math.floor((values.length - 1) / 2)] + ascending[Math.floor(values.length / 2)]) / 2;
}

function sorted(values) {
  return [...values].sort((a, b) => a - b);
}
