// The generator: Philox4x32-10 of Salmon et al., SC 2011, its words and its signs (SPEC 3).

const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;
const ROUNDS = 10;

/** Upper 32 bits of the product of two 32-bit words. */
function multiplyHigh(a, b) {
  const [aLow, aHigh, bLow, bHigh] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16];
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16); // below 2^32
  const cross = aLow * bHigh + (middle & 0xffff); // below 2^32
  return (aHigh * bHigh + (middle >>> 16) + (cross >>> 16)) >>> 0;
}

/** Block of a counter [x0, x1, x2, x3] under a key [low, high]: four words. */
export function philox(counter, key) {
  let [x0, x1, x2, x3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < ROUNDS; round += 1) {
    const [high0, low0] = [multiplyHigh(x0, MULTIPLIER_0), Math.imul(x0, MULTIPLIER_0) >>> 0];
    const [high1, low1] = [multiplyHigh(x2, MULTIPLIER_1), Math.imul(x2, MULTIPLIER_1) >>> 0];
    [x0, x1, x2, x3] = [(high1 ^ x1 ^ k0) >>> 0, low1, (high0 ^ x3 ^ k1) >>> 0, low0];
    k0 = (k0 + WEYL_0) >>> 0;
    k1 = (k1 + WEYL_1) >>> 0;
  }
  return [x0, x1, x2, x3];
}

/** First `count` words of the blocks with counters (i, direction, 0, stream) under a 64-bit key (BigInt). */
export function words(key, count, stream, direction = 0) {
  const halves = [Number(key & 0xffffffffn), Number(key >> 32n)];
  const result = new Uint32Array(Math.ceil(count / 4) * 4);
  for (let block = 0; 4 * block < count; block += 1) {
    result.set(philox([block, direction, 0, stream], halves), 4 * block);
  }
  return result.subarray(0, count);
}

/** First `count` signs (+1, -1) of the same words, lowest bit of each word first. */
export function signs(key, count, stream, direction = 0) {
  const source = words(key, Math.ceil(count / 32), stream, direction);
  return Int8Array.from({ length: count }, (_, index) => ((source[index >>> 5] >>> (index & 31)) & 1 ? -1 : 1));
}
