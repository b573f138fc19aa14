// Cases of audits.json and logs.json.

import { createHash } from "node:crypto";
import { directionsShown, isMismatch, readReport } from "./audit.mjs";
import { readLog } from "./log_file.mjs";
import { runNamed } from "./vector_messages.mjs";
import { fromBytesStar, toHex, verdictOf } from "./vector_notation.mjs";

export const AUDITS = {
  decode: ({ manifest, report }, file) =>
    verdictOf(() => {
      const found = readReport(runNamed(file, manifest), fromBytesStar(report));
      const { auditor, envelope, claimed, measured, toleranceMille } = found;
      const { author, step, scalars } = envelope;
      const about = { auditor: toHex(auditor), author: toHex(author), step, scalars, measured };
      return { ...about, is_mismatch: isMismatch(claimed, measured, toleranceMille) };
    }),
  mismatch: ({ claimed, measured, tolerance_mille: tolerance }) => ({
    is_mismatch: isMismatch(claimed, measured, tolerance),
  }),
  shown: ({ scalars, ...method }) => ({ directions: directionsShown(method, scalars) }),
};

export const LOGS = {
  read: ({ data, block_bytes_max: blockBytesMax }, file) =>
    verdictOf(() => {
      const log = readLog(fromBytesStar(data, fromBytesStar(file.base)), blockBytesMax);
      const { statements, records, ledger, coefficients, basis } = log;
      return {
        run_id: toHex(log.run.runId),
        statements,
        records,
        updates: ledger.updates,
        root: toHex(ledger.root()),
        state_digest: toHex(coefficients.digest()),
        writer: toHex(log.writer),
        basis: basis === null ? "" : createHash("sha256").update(basis).digest("hex"),
      };
    }),
};
