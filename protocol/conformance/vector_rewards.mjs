// Cases of checks.json: `input` to what is expected.

import { readRule } from "./reward.mjs";
import { rewardOf } from "./reward_checks.mjs";
import { fromBytesStar } from "./vector_notation.mjs";

export const REWARDS = {
  reward({ rule, row, answer, has_ended: hasEnded }) {
    const text = fromBytesStar(answer).toString("utf8");
    return { reward: rewardOf(readRule(rule), row, text, hasEnded).toFixed(9) };
  },
};
