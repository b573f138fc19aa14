// Cases of tokens.json: `input` to what is expected.

import { Encoder, Unusable, examplesOf } from "./tokens.mjs";
import { fromBytesStar } from "./vector_notation.mjs";

/** From text to tokens: the bytes of UTF-8, or what a table says. */
function tokenizerOf(tokens) {
  return tokens === "bytes" ? (text) => [...Buffer.from(text, "utf8")] : (text) => tokens[text];
}

function orNull(make) {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof Unusable)) throw error;
    return null;
  }
}

export const TOKENS = {
  examples({ task, tokenizer, data }, file) {
    const { special, tokens, end = [] } = tokenizer;
    const t = tokenizerOf(tokens === "table" ? file.table : tokens);
    const encoder = orNull(() => new Encoder(task, t, special, end));
    const examples = encoder && orNull(() => examplesOf(encoder, fromBytesStar(data)));
    return { words: encoder && encoder.words, examples };
  },
};
