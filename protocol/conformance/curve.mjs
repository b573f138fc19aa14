// Point arithmetic of edwards25519 in BigInt (RFC 8032, 5.1): decoding and the checks of subgroups.

export const FIELD_PRIME = 2n ** 255n - 19n;
export const GROUP_ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

const D = modulo(-121665n * power(121666n, FIELD_PRIME - 2n));
const SQRT_MINUS_ONE = power(2n, (FIELD_PRIME - 1n) / 4n);
const SIGN_BIT = 1n << 255n;
const IDENTITY = Object.freeze({ x: 0n, y: 1n, z: 1n, t: 0n });

function modulo(value) {
  const rest = value % FIELD_PRIME;
  return rest < 0n ? rest + FIELD_PRIME : rest;
}

function power(base, exponent) {
  let result = 1n;
  let square = modulo(base);
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = modulo(result * square);
    square = modulo(square * square);
  }
  return result;
}

function littleEndian(bytes) {
  return BigInt(`0x${Buffer.from(bytes).reverse().toString("hex")}`);
}

/** Scalar of 32 bytes, as in the second half of a signature. */
export function decodeScalar(bytes) {
  return littleEndian(bytes);
}

/** True if the 255 bits of y are below the field prime (the sign bit is not looked at). */
export function isCanonical(bytes) {
  return (littleEndian(bytes) & ~SIGN_BIT) < FIELD_PRIME;
}

/** The point of an encoding in extended coordinates, or null if there is none. */
export function decodePoint(bytes) {
  const encoded = littleEndian(bytes);
  const y = modulo(encoded & ~SIGN_BIT);
  const x = squareRootOfRatio(y * y - 1n, D * y * y + 1n);
  if (x === null) return null;
  const isNegative = (encoded & SIGN_BIT) !== 0n;
  const signedX = ((x & 1n) === 1n) === isNegative ? x : modulo(-x);
  return { x: signedX, y, z: 1n, t: modulo(signedX * y) };
}

function squareRootOfRatio(numerator, denominator) {
  const u = modulo(numerator);
  const v = modulo(denominator);
  const v3 = modulo(v * v * v);
  const candidate = modulo(u * v3 * power(u * v3 * v * v * v * v, (FIELD_PRIME - 5n) / 8n));
  const check = modulo(v * candidate * candidate);
  if (check === u) return candidate;
  return check === modulo(-u) ? modulo(candidate * SQRT_MINUS_ONE) : null;
}

/** Complete addition (Hisil et al. 2008, for a = -1); also right for doubling and the identity. */
function add(p, q) {
  const a = modulo((p.y - p.x) * (q.y - q.x));
  const b = modulo((p.y + p.x) * (q.y + q.x));
  const c = modulo(2n * D * p.t * q.t);
  const d = modulo(2n * p.z * q.z);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return { x: modulo(e * f), y: modulo(g * h), z: modulo(f * g), t: modulo(e * h) };
}

function multiply(point, scalar) {
  let result = IDENTITY;
  let doubled = point;
  for (let rest = scalar; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = add(result, doubled);
    doubled = add(doubled, doubled);
  }
  return result;
}

function isIdentity(point) {
  return point.x === 0n && point.y === point.z;
}

export function hasSmallOrder(point) {
  return isIdentity(multiply(point, 8n));
}

export function isInPrimeSubgroup(point) {
  return isIdentity(multiply(point, GROUP_ORDER));
}
