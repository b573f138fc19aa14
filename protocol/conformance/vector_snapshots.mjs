// Cases of snapshots.json.

import { checkAttestation, readSnapshot, takeSnapshot } from "./snapshots.mjs";
import { runNamed } from "./vector_messages.mjs";
import { fromBytesStar, fromHex, toDecimal, toHex, verdictOf } from "./vector_notation.mjs";

export const SNAPSHOTS = {
  take({ manifest, records, step }, file) {
    const given = records.map((record) => fromBytesStar(record));
    return { file: toHex(takeSnapshot(runNamed(file, manifest), given, step)) };
  },
  decode: ({ manifest, file: data }, file) =>
    verdictOf(() => {
      const { step, digest, slots, epochs } = readSnapshot(runNamed(file, manifest), fromHex(data));
      const shown = epochs.map(([epoch, values]) => [epoch, values.map(Number)]);
      return { step, digest: toHex(digest), slots: toDecimal(slots), epochs: shown };
    }),
  attestation: ({ manifest, attestation }, file) =>
    verdictOf(() => {
      const { author, step, length, sha256 } = checkAttestation(runNamed(file, manifest), fromHex(attestation));
      return { author: toHex(author), step, length, sha256: toHex(sha256) };
    }),
};
